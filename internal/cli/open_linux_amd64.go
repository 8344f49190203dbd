package cli

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
)

// Open opens a machine of the engine over the user's cache. The first one ever
// captures this machine's Python and boots it.
func Open(ctx context.Context, o Options) (Machine, Info, error) {
	m := new(machine)
	info, err := m.open(ctx, o)
	if err != nil {
		_ = m.Close() // what there is of it
		return nil, Info{}, err
	}
	return m, info, nil
}

// machine is the engine's sandbox with all that belongs to it alone.
type machine struct {
	*engine.VM
	template *engine.Template
	platform host.Platform
}

func (m *machine) open(ctx context.Context, o Options) (Info, error) {
	dir, err := CacheDir()
	if err != nil {
		return Info{}, unavailable("no sandbox", err)
	}
	file, err := ImageFile(ctx, filepath.Join(dir, "images"), o.Image, o.Progress)
	if err != nil {
		return Info{}, err
	}
	var passedOver error
	if m.platform, passedOver, err = host.Open(cmp.Or(o.Engine, host.Auto)); err != nil {
		return Info{}, unavailable("no virtual machine; '"+Program+" doctor' says what mends it", err)
	}
	if passedOver != nil && o.Progress != nil {
		o.Progress("no virtual machine: the sandbox is a traced process, isolation " + m.platform.Isolation())
	}
	m.template, err = engine.Open(ctx, engine.Config{
		Image: file, Cache: filepath.Join(dir, "templates"), Platform: m.platform, Memory: o.Memory, Progress: o.Progress,
	})
	if err != nil {
		return Info{}, err
	}
	m.VM, err = m.template.New(ctx)
	i := m.template.Info()
	return Info{Engine: i.Engine, Isolation: i.Isolation}, err
}

// Close releases the machine.
func (m *machine) Close() error {
	var errs []error
	if m.VM != nil {
		errs = append(errs, m.VM.Close())
	}
	if m.template != nil {
		errs = append(errs, m.template.Close())
	}
	if m.platform != nil {
		errs = append(errs, m.platform.Close())
	}
	return errors.Join(errs...)
}
