//go:build linux

package engine

import (
	"errors"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/maf-sandbox/maf-sandbox-go/internal/linux"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform"
)

// ErrDiffers is what Verify returns of a process that is not the template's.
var ErrDiffers = errors.New("the process differs from the template's")

// Verify compares a machine that was just made or reset with its template:
// every page, the registers and the extended state, and the personality's own
// state. The clock is the host's.
func (vm *VM) Verify() error {
	<-vm.turn
	defer func() { vm.turn <- struct{}{} }()
	t := vm.template.t
	m, ok := vm.machine.(interface {
		Verify(c *platform.Context) error
	})
	if !ok {
		return errors.New("this platform cannot verify")
	}
	if err := m.Verify(&t.Context); err != nil {
		return err
	}
	s, err := vm.process.Save()
	if err != nil {
		return err
	}
	opts := []cmp.Option{cmpopts.EquateEmpty(), cmpopts.IgnoreFields(linux.State{}, "Monotonic")}
	if s.End != t.State.End { // a machine of another size
		opts = append(opts, cmpopts.IgnoreFields(linux.State{}, "End", "Free"))
	}
	if diff := cmp.Diff(t.State, s, opts...); diff != "" {
		return errors.Join(ErrDiffers, errors.New(diff))
	}
	return nil
}
