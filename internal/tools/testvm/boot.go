package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/plan"
)

// guestImage is where the sandbox image lies in the VM.
const guestImage = "/image/test.img"

// consoleLines is how much of the kernel's messages a failure shows.
const consoleLines = 40

// test boots a kernel once and has it run everything.
func (b *built) test(ctx context.Context, k kernel, o options) error {
	rows, userland, err := programsFor(ctx, k, o)
	if err != nil {
		return err
	}
	p := plan.Plan{
		Env:   []string{plan.VersionEnv + "=" + k.version, imageEnv + "=" + guestImage},
		Steps: b.steps(rows, o),
	}
	for _, m := range k.modules {
		p.Modules = append(p.Modules, "/modules/"+filepath.Base(m))
	}
	root, err := b.initramfs(k, userland, p)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(root) }()
	fmt.Printf("booting Linux %s\n", k.version)
	start := time.Now()
	r, err := b.newReporter(ctx, p.Steps, k.series, o)
	if err != nil {
		return err
	}
	console := o.console
	if console == "" {
		console = filepath.Join(b.work, "console")
	}
	var out io.Writer = r
	if o.log != "" {
		f, err := os.OpenFile(o.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		out = io.MultiWriter(f, r)
	}
	used, qemuErr := qemu(ctx, k, root, console, o, out)
	err = r.finish()
	fmt.Printf("Linux %s: %d s, processor time %d s\n", k.version, int(time.Since(start).Seconds()), int(used.Seconds()))
	if err != nil && !errors.Is(err, errTests) {
		words, _ := os.ReadFile(console)
		return fmt.Errorf("%w\n%s", errors.Join(err, qemuErr), lastLines(string(words), consoleLines))
	}
	return err
}

// programsFor gives the archive of Debian's programs if there are rows that need
// it. When it cannot be had, these rows are left out and named among the skipped
// tests, unless a user has asked for them.
func programsFor(ctx context.Context, k kernel, o options) (rows []row, userland string, err error) {
	rest, needing := withoutUserland(o.rows)
	if len(needing) == 0 {
		return o.rows, "", nil
	}
	userland, err = userlandFor(ctx, k.series)
	var lack *unableError
	if !errors.As(err, &lack) || o.strict || len(rest) == 0 {
		return o.rows, userland, err
	}
	for _, v := range needing {
		if err := note(o.skips, fmt.Sprintf("the test VM@linux-%s-%s: %v", k.series, v, lack)); err != nil {
			return nil, "", err
		}
	}
	return rest, "", nil
}

// note tells of something skipped, and appends it to a file if there is one.
func note(file, line string) error {
	fmt.Println("skipped:", line)
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}

// qemu runs the VM until it turns itself off, with the second serial port going
// to out. It gives the processor time that this took.
func qemu(ctx context.Context, k kernel, root, console string, o options, out io.Writer) (time.Duration, error) {
	limited, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	var messages strings.Builder
	cmd := exec.CommandContext(limited, "qemu-system-x86_64",
		"-machine", "q35", "-accel", "tcg", "-cpu", "max",
		// Multi-threaded emulation once crashed a kernel; one is as fast here.
		"-smp", "1",
		"-m", strconv.Itoa(o.memory),
		"-nodefaults", "-display", "none", "-no-reboot",
		"-serial", "file:"+console, "-serial", "stdio",
		"-kernel", k.image, "-initrd", root,
		// The emulated counter is the host's, which the kernel does not believe by
		// itself; other clocks cost a sixth of the time. On a busy machine the
		// kernel's test of its timer would fail.
		"-append", "console=ttyS0 panic=-1 quiet loglevel=3 tsc=reliable no_timer_check systemd.condition-needs-update=no "+o.words)
	cmd.Stdout, cmd.Stderr = out, &messages
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	used := time.Duration(0)
	if s := cmd.ProcessState; s != nil {
		used = s.UserTime() + s.SystemTime()
	}
	if limited.Err() != nil && ctx.Err() == nil {
		return used, fmt.Errorf("the VM was stopped after %v", o.timeout)
	}
	if err != nil {
		return used, fmt.Errorf("QEMU: %w: %s", err, lastLines(messages.String(), 5))
	}
	return used, nil
}
