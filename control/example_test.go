package control_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/control/fence"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// A host that its operators may look into: it wraps its backend, and starts a
// server when its configuration says so.
func ExampleServer() {
	h := newHosted()      // a backend, control.NewMonitor(backend), and a router over it
	var calls fence.Fence // which every call of the host enters
	ctl, err := control.NewHost(control.HostConfig{
		SourceID: "research-agent",
		Monitors: []*control.Monitor{h.monitor},
		Router:   h.router,
		Quiesce:  calls.Hold,
		Purge: func(ctx context.Context, scope, threadID string) (sandbox.ScopePurge, error) {
			release, err := calls.HoldThread(ctx, scope, threadID)
			if err != nil {
				return sandbox.ScopePurge{}, err
			}
			defer release()
			return h.router.DisposeScope(ctx, scope, threadID), nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	server, err := control.NewServer(control.ServerConfig{
		Control: ctl, SourceID: "research-agent", Directory: filepath.Join(dir, "run"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := server.Start(); err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = server.Close() }()

	// The host works, and an operator looks.
	if _, err := h.acquire("python"); err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	hosts, err := control.Discover(ctx, filepath.Join(dir, "run"))
	if err != nil {
		fmt.Println(err)
		return
	}
	console := control.Unite(hosts)
	records, err := console.List(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range records {
		fmt.Println(r.SourceID, r.LogicalName(), r.Kind, r.State)
		result, err := console.Dispose(ctx, r.InstanceID, 0)
		fmt.Println(result.Status, result.Message, err)
	}
	// Output:
	// research-agent tenant/thread/agent python ready
	// disposed Sandbox disposed. <nil>
}
