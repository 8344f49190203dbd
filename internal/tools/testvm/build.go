package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/expect"
	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/plan"
)

const module = "github.com/maf-sandbox/maf-sandbox-go"

// imageEnv names a ready image to tests that would capture a Python otherwise;
// the VM has none.
const imageEnv = "MAF_SANDBOX_TEST_IMAGE"

// built is what every VM of one run shares.
type built struct {
	work     string
	init     string
	image    string
	programs map[string]string // by package folder
}

// build makes the programs and the image.
func build(ctx context.Context, work string, o options) (*built, error) {
	start := time.Now()
	b := &built{work: work, init: filepath.Join(work, "init"), programs: map[string]string{}}
	for _, t := range []struct{ out, pkg string }{
		{b.init, "./internal/tools/testvm/init"},
		{b.testreport(), "./internal/tools/testreport"},
		{b.test2json(), "cmd/test2json"},
		{b.sandbox(), "./cmd/maf-sandbox"},
	} {
		if err := goes(ctx, "build", "-ldflags=-s -w", "-o", t.out, t.pkg); err != nil {
			return nil, err
		}
	}
	for i, r := range o.rows {
		p := r.pkg
		if b.programs[p] != "" {
			continue
		}
		out := filepath.Join(work, fmt.Sprintf("%d-%s.test", i, path.Base(p)))
		if err := goes(ctx, "test", "-c", "-ldflags=-s -w", "-o", out, "./"+p); err != nil {
			return nil, err
		}
		if _, err := os.Stat(out); err != nil {
			return nil, fmt.Errorf("%s has no tests: %w", p, err)
		}
		b.programs[p] = out
	}
	var err error
	if b.image, err = b.capture(ctx); err != nil {
		return nil, err
	}
	fmt.Printf("built in %d s\n", int(time.Since(start).Seconds()))
	return b, nil
}

func (b *built) testreport() string { return filepath.Join(b.work, "testreport") }
func (b *built) test2json() string  { return filepath.Join(b.work, "test2json") }
func (b *built) sandbox() string    { return filepath.Join(b.work, "maf-sandbox") }

// goes runs the go command for programs that need no library of the VM.
func goes(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, lastLines(string(out), 20))
	}
	return nil
}

// capture makes an image of the machine's Python.
func (b *built) capture(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, b.sandbox(), "image", "build", "--json")
	cmd.Env = append(os.Environ(), "MAF_SANDBOX_CACHE="+filepath.Join(b.work, "cache"))
	out, err := quietly(cmd)
	if err != nil {
		return "", unable("needs a Python: %v", err)
	}
	var info struct {
		Path string `json:"path"`
	}
	if err := json.Unmarshal([]byte(out), &info); err != nil || info.Path == "" {
		return "", fmt.Errorf("image build gave no path: %w", errors.Join(err, errors.New(out)))
	}
	return info.Path, nil
}

// skipFlag starts the argument of a step some of whose tests are left out.
const skipFlag = "-test.skip="

// steps are the runs of the test programs.
func (b *built) steps(rows []row, o options) []plan.Step {
	var steps []plan.Step
	for _, r := range rows {
		args := []string{"-test.v=test2json", "-test.short", "-test.timeout=" + o.timeout.String()}
		if r.tests != "" {
			args = append(args, "-test.run="+r.tests)
		} else if skip := skipPattern(r.pkg); skip != "" {
			args = append(args, skipFlag+skip)
		}
		steps = append(steps, plan.Step{
			Variant: r.variant,
			Package: module + "/" + r.pkg,
			Path:    "/test/" + filepath.Base(b.programs[r.pkg]),
			Args:    append(args, o.args...),
			Dir:     "/src/" + r.pkg,
			Env:     []string{expect.Env + "=" + expect.Join(promises[r.variant])},
		})
	}
	return steps
}

// initramfs packs the first root of the VM. The kernel takes several archives
// behind each other; the programs of Debian come first, if there are any.
func (b *built) initramfs(k kernel, userland string, p plan.Plan) (string, error) {
	name := filepath.Join(b.work, "initramfs-"+k.series)
	f, err := os.Create(name)
	if err != nil {
		return "", err
	}
	if userland != "" {
		err = appendFile(f, userland)
	}
	if err == nil {
		err = b.pack(newArchive(f), k, p)
	}
	return name, errors.Join(err, f.Close())
}

func appendFile(to io.Writer, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = io.Copy(to, f)
	return err
}

func (b *built) pack(a *archive, k kernel, p plan.Plan) error {
	if err := a.file(plan.Init[1:], b.init, 0o755); err != nil {
		return err
	}
	for _, s := range setup {
		if err := a.data(s.name, s.mode, s.text); err != nil {
			return err
		}
	}
	for i, m := range k.modules {
		if err := a.file(p.Modules[i][1:], m, 0o644); err != nil {
			return err
		}
	}
	for dir, program := range b.programs {
		if err := a.file("test/"+filepath.Base(program), program, 0o755); err != nil {
			return err
		}
		if err := a.folder("src/" + dir); err != nil {
			return err
		}
		if err := a.tree("src/"+dir+"/testdata", filepath.Join(filepath.FromSlash(dir), "testdata")); err != nil {
			return err
		}
	}
	if err := a.file(guestImage[1:], b.image, 0o444); err != nil {
		return err
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := a.data(plan.File[1:], 0o644, string(text)); err != nil {
		return err
	}
	return a.close()
}
