package bench

import (
	"context"
	"fmt"

	"github.com/maf-sandbox/maf-sandbox-go/microvm"
)

// cpu runs a workload in a sandbox and natively, in turn.
func (s *suite) cpu(name string) func(context.Context, int) (Samples, error) {
	return func(ctx context.Context, n int) (Samples, error) {
		if s.noNative != nil {
			return Samples{}, s.noNative
		}
		code, err := workload(name)
		if err != nil {
			return Samples{}, err
		}
		return s.with(ctx, func(b *box) (Samples, error) {
			out := Samples{NativeName: "native python", NativeShare: nativeShare}
			for range n {
				guest, err := timed(b.Run(ctx, microvm.Request{Code: code}))
				if err != nil {
					return out, err
				}
				text, err := s.native.run(ctx, code)
				if err != nil {
					return out, err
				}
				host, err := parseNumber(text)
				if err != nil {
					return out, err
				}
				out.Values, out.Native = append(out.Values, guest), append(out.Native, host)
			}
			return out, nil
		})
	}
}

func timed(res microvm.Result, err error) (float64, error) {
	if err != nil {
		return 0, err
	}
	if res.ExitCode != 0 {
		return 0, fmt.Errorf("status %d: %s", res.ExitCode, lastLine(res.Stderr))
	}
	return parseNumber(string(res.Stdout))
}
