package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// callsPerRun is how many calls one program times.
const callsPerRun = 500

// calls is a program that times its calls of a tool by itself: what a program
// waits, its own encoding included. The first ones warm up.
const calls = `
from time import perf_counter_ns as now
def times(text, n, warm):
    out = []
    for i in range(n + warm):
        start = now()
        answer = call_tool("echo", text=text)
        out.append(now() - start)
        if answer["text"] != text: raise SystemExit("another text came back")
    return out[warm:]
print(*times("x" * %d, %d, %d))
`

// tool times round trips to a tool that gives its arguments back.
func (s *suite) tool(size int) func(context.Context, int) (Samples, error) {
	return func(ctx context.Context, n int) (out Samples, err error) {
		echo, err := sandbox.NewHostTools(sandbox.Tool{
			Name: "echo", Call: func(_ context.Context, arguments json.RawMessage) (any, error) { return arguments, nil },
		})
		if err != nil {
			return out, err
		}
		b, err := s.acquireSpec(ctx, s.backend, sandbox.Spec{Kind: "tools", Requires: sandbox.SetOf(sandbox.CapHostTools), HostTools: echo})
		if err != nil {
			return out, err
		}
		defer func() { err = errors.Join(err, b.close(ctx)) }()
		for len(out.Values) < n {
			r, err := b.Run(ctx, microvm.Request{Code: fmt.Sprintf(calls, size, min(callsPerRun, n-len(out.Values)), warmUp)})
			if err != nil || r.ExitCode != 0 {
				return out, errors.Join(err, fmt.Errorf("exit %d, %.200q", r.ExitCode, r.Stderr))
			}
			for _, field := range bytes.Fields(r.Stdout) {
				ns, err := strconv.ParseInt(string(field), 10, 64)
				if err != nil {
					return out, err
				}
				out.Values = append(out.Values, float64(ns)/1e6)
			}
		}
		return out, nil
	}
}
