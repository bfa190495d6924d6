package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// One plugin's connection by NRI's multiplexer and Go's ttrpc only. It sends messages that NRI's package never sends, such as
// an unknown method, or an answer to RegisterPlugin after Configure.
type raw struct {
	client     *ttrpc.Client
	registered chan []string
	may_answer chan struct{}
}

func (r *raw) RegisterPlugin(_ context.Context, request *api.RegisterPluginRequest) (*api.Empty, error) {
	r.registered <- []string{request.PluginIdx, request.PluginName}
	<-r.may_answer
	return &api.Empty{}, nil
}

func (r *raw) UpdateContainers(context.Context, *api.UpdateContainersRequest) (*api.UpdateContainersResponse, error) {
	return &api.UpdateContainersResponse{}, nil
}

func accept(socket string) (*raw, error) {
	os.Remove(socket)
	listening, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	defer listening.Close()
	connection, err := listening.Accept()
	if err != nil {
		return nil, err
	}
	r := &raw{registered: make(chan []string, 1), may_answer: make(chan struct{})}
	mux := multiplex.Multiplex(connection, multiplex.WithBlockedRead())
	plugin, err := mux.Open(multiplex.PluginServiceConn)
	if err != nil {
		return nil, err
	}
	r.client = ttrpc.NewClient(plugin)
	server, err := ttrpc.NewServer()
	if err != nil {
		return nil, err
	}
	api.RegisterRuntimeService(server, r)
	requests, err := mux.Listen(multiplex.RuntimeServiceConn)
	if err != nil {
		return nil, err
	}
	go func() { _ = server.Serve(context.Background(), requests) }()
	mux.Unblock()
	return r, nil
}

func (n *node) obeyRaw(ctx context.Context, line order, said *answer) (err error) {
	switch line.Do {
	case "raw-accept":
		n.raw, err = accept(n.socket)
		return err
	case "raw-registered":
		select {
		case said.Registered = <-n.raw.registered:
			return nil
		case <-time.After(30 * time.Second):
			return fmt.Errorf("the plugin does not register")
		}
	case "raw-answer":
		close(n.raw.may_answer)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	// Empty keeps all fields as unknown fields, so it fits the messages of each method and of unknown methods.
	request, response := &api.Empty{}, &api.Empty{}
	if err = proto.Unmarshal(line.Payload, request); err != nil {
		return err
	}
	err = n.raw.client.Call(ctx, line.Service, line.Method, request, response)
	if err != nil {
		if found, ok := status.FromError(err); ok && found.Code() != codes.OK {
			said.Code = uint32(found.Code())
		}
	}
	said.Payload, _ = proto.Marshal(response)
	return err
}
