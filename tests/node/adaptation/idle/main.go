// A plugin on NRI's own stub that answers CreateContainer and does nothing, to measure the time of the protocol in Go.
// idle SOCKET
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

type idle struct{}

func (idle) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (
	*api.ContainerAdjustment, []*api.ContainerUpdate, error,
) {
	return nil, nil, nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: idle SOCKET")
		os.Exit(2)
	}
	plugin, err := stub.New(idle{}, stub.WithPluginName("idle"), stub.WithPluginIdx("20"), stub.WithSocketPath(os.Args[1]))
	if err == nil {
		err = plugin.Run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "idle:", err)
		os.Exit(1)
	}
}
