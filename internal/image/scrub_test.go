package image

import (
	"bytes"
	"strings"
	"testing"
)

func TestHostPathsAreTakenOutOfTexts(t *testing.T) {
	s := newScrubber(
		[]string{"/home/ann/.pyenv/versions/3.13.0", "/usr"}, []string{"/home/ann/work/env"},
		[]string{"/tmp/build.1/Python-3.13.0"}, []string{"/home/ann", "/root"})
	tests := []struct{ name, in, want string }{
		{"prefix", "'/home/ann/.pyenv/versions/3.13.0/lib'", "'/usr/lib'"},
		{"environment", "file:///home/ann/work/env/x", "file:///usr/x"},
		{"home", "see /home/ann/notes and /home/ann", "see /home/notes and /home"},
		{"compiler flag", "-I/home/ann/include -L/root/lib", "-I/home/include -L/home/lib"},
		{"build folder", "/tmp/build.1/Python-3.13.0/Modules", "/usr/src/python/Modules"},
		{"longer name", "/home/anna /home/ann-b /home/ann.old", "/home/anna /home/ann-b /home/ann.old"},
		{"end of a sentence", "/home/ann.", "/home."},
		{"end of another path", "./root /x/root ../root ~/root $(D)/root", "./root /x/root ../root ~/root $(D)/root"},
		{"closing tag", "<root></root>", "<root></root>"},
		{"quoted", "\"/root\"", "\"/home\""},
		{"URL", "file:///root/x", "file:///home/x"},
		{"shared prefix", "/usr/bin /usr/local", "/usr/bin /usr/local"},
		{"none", "nothing here", "nothing here"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(s.scrub([]byte(tt.in), false)); got != tt.want {
				t.Errorf("%q became %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

func TestHostPathsInELFFilesKeepLengthAndEnd(t *testing.T) {
	prefix := "/home/ann/.pyenv/versions/3.13.0"
	s := newScrubber([]string{prefix}, nil, nil, []string{"/home/ann", "/root"})
	in := []byte("\x00" + prefix + "\x00" + prefix + "/lib\x00/home/ann/src\x00/root\x00x\x00")
	got := s.scrub(bytes.Clone(in), true)
	if len(got) != len(in) {
		t.Fatalf("%d bytes became %d", len(in), len(got))
	}
	parts := strings.Split(string(got), "\x00")
	// The linker may have stored "3.13.0" only as the end of the prefix.
	want := []string{"", "/usr" + strings.Repeat("/", len(prefix)-10) + "3.13.0", "", "/home/////src", "/home", "x", ""}
	want[2] = want[1] + "/lib"
	for i := range want {
		if parts[i] != want[i] {
			t.Errorf("part %d is %q, want %q", i, parts[i], want[i])
		}
	}
}

func TestUserNameAtTheEndOfAPrefixIsNotKept(t *testing.T) {
	s := newScrubber([]string{"/home/ann"}, nil, nil, []string{"/home/ann"})
	if got := string(s.scrub([]byte("/home/ann\x00"), true)); strings.Contains(got, "ann") || len(got) != 10 {
		t.Errorf("got %q", got)
	}
}

func TestDataFilesAreNotChanged(t *testing.T) {
	s := newScrubber(nil, nil, nil, []string{"/home/ann"})
	in := "PK\x00/home/ann"
	if got := string(s.scrub([]byte(in), false)); got != in {
		t.Errorf("got %q", got)
	}
}

func TestFoldersOfEverySystemAreNotPrivate(t *testing.T) {
	tests := map[string]bool{
		"/root": true, "/home/ann": true, "/opt/python/3.13": true, "/usr/local/pyenv/versions/3.13.0": true,
		"/": false, "": false, "/usr": false, "/usr/local": false, "/usr/local/lib": false, "/tmp": false,
		"/nonexistent": false, "/var/lib": false, "home/ann": false, "/etc/x": false,
	}
	for p, want := range tests {
		if got := personal(p); got != want {
			t.Errorf("personal(%q) = %v", p, got)
		}
	}
}

func FuzzScrub(f *testing.F) {
	f.Add([]byte("\x00/home/ann/lib\x00/root\x00"))
	f.Add([]byte("-I/root /home/annn"))
	s := newScrubber([]string{"/home/ann/py"}, nil, nil, []string{"/home/ann", "/root"})
	f.Fuzz(func(t *testing.T, b []byte) {
		if got := s.scrub(bytes.Clone(b), true); len(got) != len(b) {
			t.Fatalf("%d bytes became %d", len(b), len(got))
		}
		s.scrub(b, false)
	})
}
