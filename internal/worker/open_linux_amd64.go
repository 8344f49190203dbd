package worker

import (
	"cmp"
	"context"
	"errors"
	"os"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

// machine is the engine's sandbox with all that belongs to it alone.
type machine struct {
	*engine.VM
	template *engine.Template
	platform host.Platform
	// code is shared with other workers (engine.Config.Code); nil without.
	code *os.File
}

func (m *machine) open(ctx context.Context, s wire.Start) (wire.Ready, error) {
	var err error
	if m.platform, _, err = host.Open(cmp.Or(s.Engine, host.KVM)); err != nil {
		return wire.Ready{}, &engine.Error{Kind: engine.KindNoPlatform, Message: "no virtual machine", Cause: err}
	}
	m.template, err = engine.Open(ctx, engine.Config{
		Image: s.Image, ImageID: s.ImageID, Cache: s.Templates, Platform: m.platform, Memory: s.Memory, Grace: s.Grace,
		Verified: s.Verified, Code: m.code,
	})
	if err != nil {
		return wire.Ready{}, err
	}
	// Nothing may open files behind the back of a Seal.
	m.template.Sync()
	if m.VM, err = m.template.New(ctx); err != nil {
		return wire.Ready{}, err
	}
	i := m.template.Info()
	return wire.Ready{Engine: i.Engine, Isolation: i.Isolation, Python: i.Python, Stamp: i.Stamp}, nil
}

// Close implements Machine.
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
