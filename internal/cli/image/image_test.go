package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli"
	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/clitest"
	"github.com/maf-sandbox/maf-sandbox-go/internal/image"
	"github.com/maf-sandbox/maf-sandbox-go/internal/streams"
)

// fakeStore is a store in memory.
type fakeStore struct {
	infos   []image.Info
	removed []string
	built   image.Options
}

func (s *fakeStore) Build(_ context.Context, o image.Options, name string) (image.Info, error) {
	s.built = o
	switch o.Python {
	case "pypy":
		return image.Info{}, &image.UnsupportedError{Python: "pypy", Reason: "PyPy"}
	}
	return info(name), nil
}

func (s *fakeStore) List() ([]image.Info, error) { return s.infos, nil }

func (s *fakeStore) Show(what string) (image.Info, error) {
	for _, i := range s.infos {
		if slices.Contains(i.Names, what) {
			return i, nil
		}
	}
	return image.Info{}, fmt.Errorf("no image is called %q: %w", what, image.ErrNotFound)
}

func (s *fakeStore) Remove(what string) error {
	if _, err := s.Show(what); err != nil {
		return err
	}
	s.removed = append(s.removed, what)
	return nil
}

func info(name string) image.Info {
	return image.Info{
		ID: "0123456789abcdef", Names: []string{name}, Path: "/c/0123456789abcdef.img", Size: 3 << 19,
		Created: time.Unix(0, 0),
		Manifest: &image.Manifest{
			Python: "3.12.1", Libc: "glibc 2.36", Files: 7, Bytes: 1 << 20,
			Packages: []image.Package{{Name: "numpy", Version: "2.0"}},
		},
	}
}

func TestImageCommands(t *testing.T) {
	const table = "NAME  PYTHON  PACKAGES  SIZE     CREATED           ID\n"
	for _, r := range []struct {
		name   string
		args   []string
		status int
		stdout string
		msg    string
	}{
		{"build", []string{"build", "--python", "p", "--name", "data"}, 0, table + "data  3.12.1  1         1.5 MiB  1970-01-01 00:00  0123456789ab\n", ""},
		{"build what cannot be captured", []string{"build", "--python", "pypy"}, 125, "", "maf-sandbox: cannot capture pypy: it is PyPy; needed is CPython 3.9 or later for x86-64 Linux with glibc"},
		{"list", []string{"ls"}, 0, "NAME       PYTHON   PACKAGES  SIZE     CREATED           ID\na          3.12.1   1         1.5 MiB  1970-01-01 00:00  0123456789ab\nbad^[[31m  damaged  -         0.0 MiB  1970-01-01 00:00  ffff\n", ""},
		{"show", []string{"show", "a"}, 0, "id        0123456789abcdef\nnames     a\npath      /c/0123456789abcdef.img\nsize      1.5 MiB\ncreated   1970-01-01 00:00:00 UTC\npython    3.12.1\nlibc      glibc 2.36\nfiles     7, 1.0 MiB\npackages  1\n          numpy 2.0\n", ""},
		{"show what is damaged", []string{"show", "bad\x1b[31m"}, 125, "id        ffff\nnames     bad^[[31m\npath\nsize      0.0 MiB\ncreated   1970-01-01 00:00:00 UTC\ndamaged   damaged\n", ""},
		{"show what is not there", []string{"show", "b"}, 125, "", `maf-sandbox: no image is called "b": not found`},
		{"remove some", []string{"rm", "a", "b"}, 125, "removed a\n", `maf-sandbox: no image is called "b": not found`},
		{"remove as JSON", []string{"rm", "a", "--json"}, 0, `{"removed":["a"]}` + "\n", ""},
	} {
		t.Run(r.name, func(t *testing.T) {
			store := &fakeStore{infos: []image.Info{info("a"), {ID: "ffff", Names: []string{"bad\x1b[31m"}, Problem: "damaged", Created: time.Unix(0, 0)}}}
			stdout, err := command(t, store, r.args...)
			if cli.ExitStatus(err) != r.status || cli.Message(err) != r.msg || stdout != r.stdout {
				t.Errorf("got %d, %q, %q\nwant %d, %q, %q", cli.ExitStatus(err), cli.Message(err), stdout, r.status, r.msg, r.stdout)
			}
		})
	}
}

func TestPathsAreMeantFromTheCurrentFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		flag, value string
		want        image.Options
	}{
		{"--venv", "venv", image.Options{Venv: filepath.Join(here, "venv")}},
		{"--python", "./bin/py", image.Options{Python: filepath.Join(here, "bin/py")}},
		{"--python", "python3.12", image.Options{Python: "python3.12"}},
	} {
		store := new(fakeStore)
		if _, err := command(t, store, "build", r.flag, r.value); err != nil || store.built.Python != r.want.Python || store.built.Venv != r.want.Venv {
			t.Errorf("%s %s: got %+v, %v", r.flag, r.value, store.built, err)
		}
	}
}

func TestAnEmptyListIsAnEmptyArray(t *testing.T) {
	if stdout, err := command(t, &fakeStore{}, "ls", "--json"); err != nil || stdout != "[]\n" {
		t.Errorf("got %v, %q", err, stdout)
	}
}

func TestAStoreThatCannotBeOpenedIsAnError(t *testing.T) {
	for _, args := range [][]string{{"ls"}, {"show", "x"}, {"rm", "x"}, {"build"}} {
		if _, err := command(t, nil, args...); !errors.Is(err, image.ErrUnsafeFolder) {
			t.Errorf("%v: got %v", args, err)
		}
	}
}

func command(t *testing.T, store *fakeStore, args ...string) (stdout string, err error) {
	t.Helper()
	s, out, _ := streams.Test("")
	f, _ := (&clitest.Engine{}).Factory(s, t.TempDir())
	cmd := newCmd(f, func(string) (Store, error) {
		if store == nil {
			return nil, image.ErrUnsafeFolder
		}
		return store, nil
	})
	root := &cobra.Command{Use: "maf-sandbox", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(cmd)
	root.SetArgs(append([]string{"image"}, args...))
	err = root.ExecuteContext(context.Background())
	return out.String(), err
}
