package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/windows"
)

// folder is a folder for a test, removed as well as it can be: Wine before 9
// does not know the way in which Go removes what is in a folder.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rundir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil && !underWine() {
			t.Error(err)
		}
	})
	return dir
}

func underWine() bool {
	return windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil
}

func TestTheFolderIsWhereThePeersLook(t *testing.T) {
	for _, tt := range []struct {
		name, env, local, user, want string
	}{
		{"named", `rel\ative`, `C:\l`, "", `rel\ative`},
		{"local data", "", `C:\l`, "", `C:\l\sokolai\maf-sandbox-tui`},
		// The digits are Python's hashlib.sha256("someone".encode()).hexdigest()[:16].
		{"temporary", "", "", "someone", filepath.Join(os.TempDir(), "maf-sandbox-tui-2a59d59e3809f827")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(EnvDir, tt.env)
			t.Setenv("LOCALAPPDATA", tt.local)
			t.Setenv("LOGNAME", tt.user)
			if got := Default(); got != tt.want {
				t.Errorf("Default = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestAFolderIsMadeForThisUserAlone(t *testing.T) {
	path := filepath.Join(folder(t), "parent", "run")
	for range 2 { // one that is good is taken
		d, err := Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAFolderThatLetsOthersInIsRefusedAndNotChanged(t *testing.T) {
	path := filepath.Join(folder(t), "run")
	d, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = d.Close()
	user, err := currentUser()
	if err != nil {
		t.Fatal(err)
	}
	sd, err := windows.SecurityDescriptorFromString("D:P(A;OICI;FA;;;" + user + ")(A;OICI;GR;;;WD)")
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := sd.DACL()
	if err != nil {
		t.Fatal(err)
	}
	if err := windows.SetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.DACL_SECURITY_INFORMATION|windows.PROTECTED_DACL_SECURITY_INFORMATION, nil, nil, list, nil); err != nil {
		t.Fatal(err)
	}
	for verb, f := range map[string]func(string) (*Dir, error){"Create": Create, "Open": Open} {
		if _, err := f(path); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "is not private") {
			t.Errorf("%s: got %v", verb, err)
		}
	}
}

func TestAnAnnouncementIsReadAsItWasWritten(t *testing.T) {
	d, err := Create(filepath.Join(folder(t), "run"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	a, err := d.Announce(NewStem(), []byte("text"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.Withdraw(); err != nil && !underWine() {
			t.Error(err)
		}
	}()
	files, err := d.Files()
	if err != nil || len(files) != 1 || files[0].Name != a.Name() || string(files[0].Data) != "text" {
		t.Errorf("got %v, %v", files, err)
	}
}
