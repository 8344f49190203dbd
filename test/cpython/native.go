//go:build linux && amd64

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// native runs programs in the same interpreter outside the sandbox: in an empty
// folder, with the flags and the environment that the engine gives it.
type native struct{ python *Interpreter }

func (n native) run(ctx context.Context, program string, limit time.Duration, out *collector) (how string, err error) {
	dir, err := os.MkdirTemp("", "cpython-tests-*")
	if err != nil {
		return "", err
	}
	defer func() {
		if rmErr := os.RemoveAll(dir); err == nil {
			err = rmErr
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, n.python.Path, append(interpreterFlags[:len(interpreterFlags):len(interpreterFlags)], "-c", program)...)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "TMPDIR=" + dir, "LANG=C.UTF-8", "TZ=UTC", "OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1", "PATH=" + os.Getenv("PATH")}
	cmd.Stdout = out
	// Tests start processes; all of them end with the module.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	end := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = end
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return "", err
	}
	err = cmd.Wait()
	_ = end() // of what the interpreter left behind, if anything
	if cmd.ProcessState == nil {
		return "", err
	}
	return cmd.ProcessState.String(), nil
}

// results is a folder of outcomes by module, so that what has not changed need
// not run again.
type results struct{ dir string }

// openResults gives the folder for everything that key names.
func openResults(cache, kind string, key ...string) (results, error) {
	all := kind
	for _, k := range key {
		all += "\x00" + k
	}
	r := results{filepath.Join(cache, kind+"-"+digest(all))}
	return r, os.MkdirAll(r.dir, 0o700)
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

func (r results) load(module string) (Tests, bool) {
	b, err := os.ReadFile(filepath.Join(r.dir, module+".json"))
	if err != nil {
		return nil, false
	}
	var t Tests
	return t, json.Unmarshal(b, &t) == nil
}

func (r results) save(module string, t Tests) error {
	b, err := json.MarshalIndent(t, "", " ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(r.dir, ".tmp-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(r.dir, module+".json"))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
