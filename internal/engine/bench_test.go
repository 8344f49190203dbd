//go:build linux && amd64

package engine_test

import (
	"context"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

// The numbers that users are promised are printed by `maf-sandbox bench`, with
// percentiles and targets; these are for profiling.

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func BenchmarkWarmRun(b *testing.B) {
	vm := machine(b, template(b, nil))
	run(b, vm, "print(6*7)")
	for b.Loop() {
		run(b, vm, "print(6*7)")
	}
}

func BenchmarkReset(b *testing.B) {
	vm := machine(b, template(b, nil))
	for b.Loop() {
		b.StopTimer()
		run(b, vm, "print(6*7)")
		b.StartTimer()
		must(b, vm.Reset(context.Background()))
	}
}

func BenchmarkResetAndRun(b *testing.B) {
	vm := machine(b, template(b, nil))
	for b.Loop() {
		must(b, vm.Reset(context.Background()))
		run(b, vm, "print(6*7)")
	}
}

func BenchmarkFreshMachineToAnswer(b *testing.B) {
	tm := template(b, nil)
	for b.Loop() {
		vm, err := tm.New(context.Background())
		must(b, err)
		run(b, vm, "print(6*7)")
		b.StopTimer()
		must(b, vm.Close())
		b.StartTimer()
	}
}

func BenchmarkMebibyteOfOutput(b *testing.B) {
	vm := machine(b, template(b, nil))
	for b.Loop() {
		res, err := vm.Run(context.Background(), engine.Request{Code: []byte("for i in range(10000): print('x' * 104)"), MaxOutput: 2 << 20})
		must(b, err)
		if len(res.Stdout) != 1050000 {
			b.Fatal(len(res.Stdout))
		}
	}
}
