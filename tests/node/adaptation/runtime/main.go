// A container runtime's side of NRI by NRI's own Go package, which containerd and CRI-O use. Executes commands: lines of JSON on
// standard input. Answers each with one line of JSON on standard output. The package's log is on standard error. It ends with its
// standard input.
//
//	runtime SOCKET [PLUGIN_DIRECTORY PLUGIN_CONFIG_DIRECTORY]
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	nrigenerate "github.com/containerd/nri/pkg/runtime-tools/generate"
	"github.com/containerd/ttrpc"
	rspec "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/runtime-tools/generate"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// A command. Pods and containers are in protobuf's JSON form.
type order struct {
	Do         string
	Pod        json.RawMessage
	Container  json.RawMessage
	Pods       []json.RawMessage
	Containers []json.RawMessage
	Metadata   map[string]string
	Count      int
	Service    string
	Method     string
	Payload    []byte
	Seconds    float64
}

type answer struct {
	Error      string          `json:"error"`
	Seconds    float64         `json:"seconds"`
	Adjustment json.RawMessage `json:"adjustment,omitempty"`
	Size       int             `json:"size,omitempty"` // of CreateContainerResponse on the wire
	Spec       *rspec.Spec     `json:"spec,omitempty"` // an empty one with the adjustment
	Registered []string        `json:"registered,omitempty"`
	Payload    []byte          `json:"payload,omitempty"`
	Code       uint32          `json:"code,omitempty"`
	Syncs      int             `json:"syncs"`
}

// The runtime: NRI's package with the pods and containers.
type node struct {
	sync.Mutex
	changed    *sync.Cond
	options    []adaptation.Option
	nri        *adaptation.Adaptation
	syncs      int // synchronized plugins
	pods       []*api.PodSandbox
	containers []*api.Container
	raw        *raw
	socket     string
}

func (n *node) start() error {
	nri, err := adaptation.New("containerd", "v2.0.0", n.synchronize, n.update, n.options...)
	if err != nil {
		return err
	}
	n.nri = nri
	return nri.Start()
}

func (n *node) synchronize(ctx context.Context, tell adaptation.SyncCB) error {
	n.Lock()
	pods, containers := n.pods, n.containers
	n.Unlock()
	_, err := tell(ctx, pods, containers)
	n.Lock()
	defer n.Unlock()
	if err == nil {
		n.syncs++
	}
	n.changed.Broadcast()
	return err
}

func (n *node) update(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
	return nil, nil
}

// Returns true if this number of plugins is synchronized.
func (n *node) wait(count int, seconds float64) bool {
	n.Lock()
	defer n.Unlock()
	late := time.AfterFunc(time.Duration(seconds*float64(time.Second)), func() {
		n.Lock()
		defer n.Unlock()
		count = 0
		n.changed.Broadcast()
	})
	defer late.Stop()
	for n.syncs < count {
		n.changed.Wait()
	}
	return count > 0
}

func parse(text json.RawMessage, into proto.Message) error {
	if len(text) == 0 {
		return nil
	}
	return protojson.Unmarshal(text, into)
}

// Returns a container's config.json as containerd's package makes it.
func adjusted(adjustment *api.ContainerAdjustment) (*rspec.Spec, error) {
	spec := &rspec.Spec{Process: &rspec.Process{}, Linux: &rspec.Linux{}, Root: &rspec.Root{}}
	generator := nrigenerate.SpecGenerator(&generate.Generator{Config: spec})
	return spec, generator.Adjust(adjustment)
}

func (n *node) create(ctx context.Context, pod *api.PodSandbox, container *api.Container, said *answer) error {
	response, err := n.nri.CreateContainer(ctx, &api.CreateContainerRequest{Pod: pod, Container: container})
	if err != nil {
		return err
	}
	said.Size = proto.Size(response)
	if said.Adjustment, err = protojson.Marshal(response.Adjust); err != nil {
		return err
	}
	said.Spec, err = adjusted(response.Adjust)
	return err
}

func (n *node) event(ctx context.Context, what string, pod *api.PodSandbox, container *api.Container) error {
	event := &api.StateChangeEvent{Pod: pod, Container: container}
	switch what {
	case "run-pod":
		event.Container = nil
		return n.nri.RunPodSandbox(ctx, event)
	case "stop-pod":
		event.Container = nil
		return n.nri.StopPodSandbox(ctx, event)
	case "remove-pod":
		event.Container = nil
		return n.nri.RemovePodSandbox(ctx, event)
	case "remove":
		return n.nri.RemoveContainer(ctx, event)
	case "stop":
		_, err := n.nri.StopContainer(ctx, &api.StopContainerRequest{Pod: pod, Container: container})
		return err
	}
	return fmt.Errorf("unknown order %q", what)
}

func (n *node) state(pods, containers []json.RawMessage) error {
	n.Lock()
	defer n.Unlock()
	n.pods, n.containers = nil, nil
	for _, text := range pods {
		pod := &api.PodSandbox{}
		if err := parse(text, pod); err != nil {
			return err
		}
		n.pods = append(n.pods, pod)
	}
	for _, text := range containers {
		container := &api.Container{}
		if err := parse(text, container); err != nil {
			return err
		}
		n.containers = append(n.containers, container)
	}
	return nil
}

func (n *node) obey(line order, said *answer) error {
	pod, container := &api.PodSandbox{}, &api.Container{}
	if err := parse(line.Pod, pod); err != nil {
		return err
	}
	if err := parse(line.Container, container); err != nil {
		return err
	}
	ctx := context.Background()
	if len(line.Metadata) > 0 {
		metadata := ttrpc.MD{}
		for key, value := range line.Metadata {
			metadata.Set(key, value)
		}
		ctx = ttrpc.WithMetadata(ctx, metadata)
	}
	switch line.Do {
	case "start":
		if line.Seconds > 0 {
			adaptation.SetPluginRequestTimeout(time.Duration(line.Seconds * float64(time.Second)))
		}
		return n.start()
	case "stop-runtime":
		n.nri.Stop()
		return nil
	case "state":
		return n.state(line.Pods, line.Containers)
	case "wait":
		if !n.wait(line.Count, line.Seconds) {
			return fmt.Errorf("not so many plugins were synchronized with")
		}
		return nil
	case "create":
		return n.create(ctx, pod, container, said)
	case "raw-accept", "raw-registered", "raw-answer", "raw-call":
		return n.obeyRaw(ctx, line, said)
	}
	return n.event(ctx, line.Do, pod, container)
}

func main() {
	if len(os.Args) != 2 && len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: runtime SOCKET [PLUGIN_DIRECTORY PLUGIN_CONFIG_DIRECTORY]")
		os.Exit(2)
	}
	// Missing directories: no plugins of this machine.
	directories := []string{os.Args[1] + ".no-plugins", os.Args[1] + ".no-configs"}
	if len(os.Args) == 4 {
		directories = os.Args[2:]
	}
	n := &node{socket: os.Args[1], options: []adaptation.Option{adaptation.WithSocketPath(os.Args[1]),
		adaptation.WithPluginPath(directories[0]), adaptation.WithPluginConfigPath(directories[1])}}
	n.changed = sync.NewCond(n)
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	answers := json.NewEncoder(os.Stdout)
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var line order
		said := answer{}
		began := time.Now()
		if err = json.Unmarshal(text, &line); err == nil {
			err = n.obey(line, &said)
		}
		said.Seconds = time.Since(began).Seconds()
		if err != nil {
			said.Error = err.Error()
		}
		n.Lock()
		said.Syncs = n.syncs
		n.Unlock()
		if err = answers.Encode(said); err != nil {
			return
		}
	}
}
