//go:build linux && amd64

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
)

// guestMemory is what the tests get: the largest that run by default hold a
// few hundred MiB.
const guestMemory = 1 << 30

// sandbox runs programs in fresh machines of one template.
type sandbox struct {
	platform host.Platform
	template *engine.Template
}

// openSandbox captures the interpreter with its tests, unless the cache has it,
// and boots it.
func openSandbox(ctx context.Context, p *Interpreter, cache string, again bool, say func(string)) (*sandbox, error) {
	platform, _, err := host.Open(cmp.Or(os.Getenv("MAF_SANDBOX_TEST_ENGINE"), host.Auto))
	if err != nil {
		return nil, err
	}
	s := &sandbox{platform: platform}
	if err = s.boot(ctx, p, cache, again, say); err != nil && !again {
		// The kept image may be that of an older format.
		err = s.boot(ctx, p, cache, true, say)
	}
	if err != nil {
		return nil, errors.Join(err, platform.Close())
	}
	return s, nil
}

func (s *sandbox) boot(ctx context.Context, p *Interpreter, cache string, again bool, say func(string)) error {
	file, err := imageFile(ctx, p, cache, again, say)
	if err != nil {
		return err
	}
	s.template, err = engine.Open(ctx, engine.Config{
		Image: file, Platform: s.platform, Memory: guestMemory,
		// A test that obeys an interrupt says where it was stuck.
		Grace: 2 * time.Second, Progress: say,
	})
	return err
}

// imageFile finds the image, or makes it if there is none or again is set. Its
// name changes with the interpreter; nobody edits CPython's tests.
func imageFile(ctx context.Context, p *Interpreter, cache string, again bool, say func(string)) (string, error) {
	store, err := image.OpenStore(filepath.Join(cache, "images"))
	if err != nil {
		return "", err
	}
	stamp, err := p.stamp()
	if err != nil {
		return "", err
	}
	name := "tests-" + digest(stamp)
	if file, err := store.Resolve(name); err == nil && !again {
		return file, nil
	}
	info, err := store.Build(ctx, image.Options{Python: p.Path, Tests: true, Log: say}, name)
	return info.Path, err
}

func (s *sandbox) run(ctx context.Context, program string, limit time.Duration, out *collector) (string, error) {
	vm, err := s.template.New(ctx)
	if err != nil {
		return "", err
	}
	res, err := vm.Run(ctx, engine.Request{
		Code: []byte(program), Timeout: limit, MaxOutput: engine.MaxOutputBytes, Stdout: out,
	})
	if closeErr := vm.Close(); closeErr != nil {
		return "", closeErr
	}
	var e *engine.Error
	switch {
	case err == nil && res.Exited:
		return fmt.Sprintf("the program ended the interpreter with status %d", res.ExitCode), nil
	case err == nil:
		return fmt.Sprintf("exit status %d: %s", res.ExitCode, lastLine(res.Stderr)), nil
	case errors.As(err, &e) && e.Kind != engine.KindInternal:
		return e.Error(), nil
	}
	return "", err
}

func (s *sandbox) close() error { return errors.Join(s.template.Close(), s.platform.Close()) }

// lastLine gives the last line that is not empty.
func lastLine(b []byte) string {
	s := strings.TrimSpace(string(b))
	return s[strings.LastIndexByte(s, '\n')+1:]
}
