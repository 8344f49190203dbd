//go:build unix

package rundir

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func private(t *testing.T) string { return filepath.Join(t.TempDir(), "run") }

func create(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func listed(t *testing.T, d *Dir) []string {
	t.Helper()
	files, err := d.Files()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
	}
	return names
}

func TestTheFolderIsWhereThePeersLook(t *testing.T) {
	tmp := t.TempDir()
	file := filepath.Join(tmp, "file")
	write(t, file, "")
	uid := fmt.Sprint(os.Getuid())
	for _, tt := range []struct {
		name, env, xdg, tmpdir, temp, want string
	}{
		{"named", "rel/ative", "/xdg", "/t", "", "rel/ative"},
		{"session", "", "/xdg", "/t", "", "/xdg/maf-sandbox-tui"},
		{"temporary", "", "", tmp, "", tmp + "/maf-sandbox-tui-" + uid},
		{"second temporary", "", "", tmp + "/absent", tmp, tmp + "/maf-sandbox-tui-" + uid},
		{"temporary that is a file", "", "", file, tmp, tmp + "/maf-sandbox-tui-" + uid},
		{"nothing set", "", "", "", "", "/tmp/maf-sandbox-tui-" + uid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for name, value := range map[string]string{EnvDir: tt.env, "XDG_RUNTIME_DIR": tt.xdg, "TMPDIR": tt.tmpdir, "TEMP": tt.temp, "TMP": ""} {
				t.Setenv(name, value)
			}
			if got := Default(); got != tt.want {
				t.Errorf("Default = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestAFolderIsMadeForThisUserAlone(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	path := filepath.Join(t.TempDir(), "parent", "run")
	create(t, path)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	create(t, path) // one that is good is taken
}

func TestAFolderThatIsNotPrivateIsRefusedAndNotChanged(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(t *testing.T, path string)
		want string
	}{
		{"open to all", func(t *testing.T, path string) { mkdir(t, path, 0o755) }, "directory is not private"},
		{"open to the group", func(t *testing.T, path string) { mkdir(t, path, 0o710) }, "directory is not private"},
		{"a file", func(t *testing.T, path string) { write(t, path, "") }, "path is not a directory"},
		{"a link to a good folder", func(t *testing.T, path string) {
			mkdir(t, path+"-real", 0o700)
			if err := os.Symlink(path+"-real", path); err != nil {
				t.Fatal(err)
			}
		}, "path is not a directory"},
		{"of another user", func(t *testing.T, path string) {
			mkdir(t, path, 0o700)
			if err := os.Chown(path, 65534, 65534); err != nil {
				t.Skipf("needs the right to give a folder away: %v", err)
			}
		}, "directory is not owned by this user"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := private(t)
			tt.make(t, path)
			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			for verb, f := range map[string]func(string) (*Dir, error){"Create": Create, "Open": Open} {
				// With these the system itself looks behind a link.
				for _, end := range []string{"", "/", "//", "/.", "/./"} {
					d, err := f(path + end)
					if !errors.Is(err, ErrUnsafe) || d != nil {
						t.Fatalf("%s(%s%s): %v", verb, path, end, err)
					}
					if want := "sandbox discovery " + tt.want + ": " + path; err.Error() != want {
						t.Errorf("%s says %q, want %q", verb, err, want)
					}
				}
			}
			if after, err := os.Lstat(path); err != nil || after.Mode() != before.Mode() {
				t.Errorf("mode %v became %v (%v)", before.Mode(), after.Mode(), err)
			}
		})
	}
}

func mkdir(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	if err := errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

func TestAMissingFolderIsNotMadeByAReader(t *testing.T) {
	path := private(t)
	if _, err := Open(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open: %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder was made: %v", err)
	}
}

func TestAnAnnouncementAppearsWholeAndPrivate(t *testing.T) {
	d := create(t, private(t))
	stem := NewStem()
	a, err := d.Announce(stem, []byte("text"))
	if err != nil {
		t.Fatal(err)
	}
	if got := listed(t, d); !slices.Equal(got, []string{stem + ".json"}) {
		t.Errorf("listed %v", got)
	}
	info, err := os.Stat(filepath.Join(d.Path(), a.Name()))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := d.Announce(stem, nil); err != nil {
		t.Errorf("a second with the same name: %v", err)
	}
	if err := a.Withdraw(); err != nil {
		t.Fatal(err)
	}
	if got := listed(t, d); !slices.Equal(got, []string{stem + ".json"}) {
		t.Errorf("the first removed what the second announced: %v", got)
	}
}

func TestNothingIsLeftOfAnAnnouncementThatFailed(t *testing.T) {
	d := create(t, private(t))
	if err := os.Mkdir(filepath.Join(d.Path(), "1-a.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Announce("1-a", nil); err == nil {
		t.Fatal("a file took the place of a folder")
	}
	if _, err := os.Lstat(filepath.Join(d.Path(), "1-a.json.tmp")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a temporary file is left: %v", err)
	}
}

func TestWithdrawingFromAFolderThatIsGoneIsNoError(t *testing.T) {
	d := create(t, private(t))
	a, err := d.Announce(NewStem(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(d.Path()); err != nil {
		t.Fatal(err)
	}
	if err := a.Withdraw(); err != nil {
		t.Error(err)
	}
}

func TestOnlyRegularFilesOfBoundedSizeAreRead(t *testing.T) {
	d := create(t, private(t))
	at := func(name string) string { return filepath.Join(d.Path(), name) }
	write(t, at("b.json"), "b")
	write(t, at(".a.json"), "hidden counts")
	write(t, at("c.txt"), "another suffix")
	write(t, at("d.json.tmp"), "unfinished")
	write(t, at("e.json"), strings.Repeat("x", MaxFileBytes))
	write(t, at("f.json"), strings.Repeat("x", MaxFileBytes+1))
	mkdir(t, at("g.json"), 0o700)
	if err := errors.Join(syscall.Mkfifo(at("h.json"), 0o600), os.Symlink(at("b.json"), at("i.json"))); err != nil {
		t.Fatal(err)
	}
	if got, want := listed(t, d), []string{".a.json", "b.json", "e.json"}; !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
}

func TestTooManyFilesAreAnErrorThatSaysWhatToDo(t *testing.T) {
	d := create(t, private(t))
	for i := range MaxEntries + 1 {
		write(t, filepath.Join(d.Path(), fmt.Sprintf("%d.json", i)), "")
	}
	if _, err := d.Files(); err == nil || !strings.Contains(err.Error(), "remove those") {
		t.Errorf("Files: %v", err)
	}
}

// What nobody can read any more, the next host makes readable again.
func TestASweepClearsAFolderThatHasTooManyFiles(t *testing.T) {
	d := create(t, private(t))
	for i := range MaxEntries + 1 {
		write(t, filepath.Join(d.Path(), fmt.Sprintf("%d-dead.json", i)), "ours")
	}
	write(t, filepath.Join(d.Path(), "0-foreign.json"), "foreign")
	d.Sweep(func(data []byte) bool { return bytes.Equal(data, []byte("ours")) })
	if left := listed(t, d); !slices.Equal(left, []string{"0-foreign.json"}) {
		t.Errorf("%d are left", len(left))
	}
}

func TestASweepRemovesOnlyWhatAHostThatIsGoneLeft(t *testing.T) {
	d := create(t, private(t))
	at := func(name string) string { return filepath.Join(d.Path(), name) }
	living, err := d.Announce("1-living", []byte("ours"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"2-dead.json", "3-old.json.tmp", "4-young.json.tmp"} {
		write(t, at(name), "ours")
	}
	write(t, at("2-dead.sock"), "")
	write(t, at("1-living.sock"), "")
	write(t, at("5-foreign.json"), "foreign")
	write(t, at("6-notes.txt"), "ours")
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(at("3-old.json.tmp"), long, long); err != nil {
		t.Fatal(err)
	}
	d.Sweep(func(data []byte) bool { return bytes.Equal(data, []byte("ours")) })
	left, err := d.names()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"1-living.json", "1-living.sock", "4-young.json.tmp", "5-foreign.json", "6-notes.txt"}
	if !slices.Equal(left, want) {
		t.Errorf("left %v, want %v", left, want)
	}
	if err := living.Withdraw(); err != nil {
		t.Error(err)
	}
}

func TestAnAnnouncementIsHeldForAsLongAsItsHostLives(t *testing.T) {
	d := create(t, private(t))
	living, err := d.Announce("1-living", nil)
	if err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(d.Path(), "2-dead.json")
	write(t, dead, "")
	// Another console that looks at this moment is no host.
	looking, err := os.Open(dead)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = looking.Close() }()
	if !isFree(looking) {
		t.Fatal("a file that nobody has locked is not free")
	}
	if err := os.Symlink("1-living.json", filepath.Join(d.Path(), "4-link.json")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		want bool
		err  func(error) bool
	}{
		{"1-living.json", true, isNil},
		{"2-dead.json", false, isNil},
		{"3-absent.json", false, func(err error) bool { return errors.Is(err, fs.ErrNotExist) }},
		// What is not looked at is not known to be dead.
		{"4-link.json", false, func(err error) bool { return err != nil && !errors.Is(err, fs.ErrNotExist) }},
	} {
		if got, err := d.Held(tt.name); got != tt.want || !tt.err(err) {
			t.Errorf("%s is held: %v, %v", tt.name, got, err)
		}
	}
	if err := living.Withdraw(); err != nil {
		t.Fatal(err)
	}
	if held, err := d.Held("1-living.json"); held || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an announcement that was withdrawn is held: %v, %v", held, err)
	}
}

func isNil(err error) bool { return err == nil }

func TestAPathLosesWhatIsBehindItsLastName(t *testing.T) {
	for path, want := range map[string]string{
		"": "", ".": ".", "./": ".", "..": "..", "../": "..", "/": "/", "//": "/", "/.": "/", "a": "a", "a.": "a.", "a/": "a",
		"/a//": "/a", "/a/.": "/a", "/a/./": "/a", "/a/..": "/a/..", "/a/.b": "/a/.b", "/a/b.": "/a/b.",
	} {
		if got := bare(filepath.FromSlash(path)); got != filepath.FromSlash(want) {
			t.Errorf("%q became %q, want %q", path, got, want)
		}
	}
}
