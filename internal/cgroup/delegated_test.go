//go:build linux

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/testvm/expect"
)

// perform does what a shell would do with the commands of a recipe. They have
// three forms; the shell's own process is pid.
func perform(commands []string, pid int) error {
	for _, c := range commands {
		c = strings.ReplaceAll(strings.ReplaceAll(c, "$$", strconv.Itoa(pid)), "sudo ", "")
		f := strings.Fields(c)
		var err error
		switch {
		case len(f) == 3 && f[0] == "mkdir":
			err = os.MkdirAll(f[2], 0o755)
		case len(f) >= 5 && f[0] == "echo" && f[len(f)-2] == "tee":
			err = os.WriteFile(f[len(f)-1], []byte(strings.Join(f[1:len(f)-3], " ")+"\n"), 0)
		case len(f) == 4 && f[0] == "chown":
			var uid int
			if uid, err = strconv.Atoi(f[1]); err == nil {
				err = errors.Join(os.Chown(f[2], uid, -1), os.Chown(f[3], uid, -1))
			}
		default:
			err = errors.New("unknown command")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
	}
	return nil
}

func TestOperatorsRecipeServesAnUnprivilegedUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to play the operator")
	}
	parent := memoryRoot(t).Path()
	if err := os.Chmod(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(parent, "root")
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{roleVariable + "=delegated", "ROOT=" + root}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		expect.Cgroup.Skip(t, "needs a test binary that user 1000 can execute: %v", err)
	}
	stop := time.AfterFunc(hang, func() { _ = cmd.Process.Kill() })
	defer stop.Stop()
	err = perform(Recipe(root, "1000"), cmd.Process.Pid)
	_ = in.Close() // the signal to begin
	if err := errors.Join(err, cmd.Wait()); err != nil || out.String() != "ok" {
		t.Errorf("%v: %s", err, &out)
	}
	if err := errors.Join(os.Remove(filepath.Join(root, hostLeaf)), os.Remove(root)); err != nil {
		t.Error(err)
	}
}

// delegated is the unprivileged host.
func delegated() {
	_, _ = os.Stdin.Read(make([]byte, 1))
	if err := useDelegated(os.Getenv("ROOT")); err != nil {
		fmt.Print(err)
		os.Exit(1)
	}
	fmt.Print("ok")
	os.Exit(0)
}

func useDelegated(root string) error {
	if _, err := Open(filepath.Dir(root)); !errors.Is(err, ErrSetup) {
		return fmt.Errorf("a root of another user: %w", err)
	}
	r, err := Open(root)
	if err != nil {
		return err
	}
	if err := r.Memory(); err != nil {
		return err
	}
	g, err := r.New("mine", Limits{MemoryMax: 64 << 20})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	eater := exec.Command("/proc/self/exe")
	eater.Env = []string{roleVariable + "=eat"}
	eater.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: g.FD()}
	if err := eater.Run(); err == nil {
		return errors.New("the limit did not hold")
	}
	e, err := g.Events()
	if err != nil || !e.Killed() {
		return fmt.Errorf("events %+v: %w", e, err)
	}
	return errors.Join(g.Kill(), g.Remove(ctx), r.Close())
}
