package console

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

var update = flag.Bool("update", false, "write the golden screens anew")

// golden compares a screen with the one that a person has looked at.
func golden(t *testing.T, name, screen string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(screen), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test -update writes it", err)
	}
	if diff := cmp.Diff(string(want), screen); diff != "" {
		t.Errorf("%s differs (-golden +screen):\n%s", name, diff)
	}
}

// hostile is a host with texts that are wide, long, or meant for the terminal.
func hostile() *fakeHosts {
	records := sandboxes("evil\x1b[2J", 4)
	for i, change := range []func(*control.Record){
		func(r *control.Record) {
			r.Scope, r.ThreadID, r.AgentID = "\x1b]0;owned\a", "\u009b31m", "\u202eabc"
			r.InstanceID = "\x1b[31m\r\n0123456789"
		},
		func(r *control.Record) {
			r.Scope, r.ThreadID, r.AgentID = "会議室", "スレッド一二三", "分析官さん"
			r.InstanceID, r.State = "日本語の識別子", control.StateRunning
		},
		func(r *control.Record) {
			r.ThreadID, r.State = strings.Repeat("long-", 100), control.StateFailed
			r.InstanceID = strings.Repeat("9", 300)
			r.EgressTargets = []string{"a.example", "\x07b.example"}
		},
		func(r *control.Record) {
			r.ThreadID, r.Kind = "👩‍👩‍👧 é̂ ﷽", "a\tb\nc"
			r.State, r.ExecutionContract = control.StateResetting, "\x9bcontract"
		},
	} {
		change(&records[i])
	}
	return newHosts().add("evil\x1b[2J", records...)
}

func TestScreensLookAsTheyDid(t *testing.T) {
	for _, size := range [][2]int{{140, 36}, {80, 24}, {40, 10}} {
		for _, scene := range []struct {
			name  string
			hosts func() *fakeHosts
			keys  []string
		}{
			{"demo", demo, []string{"down"}},
			{"hostile", hostile, []string{"down"}},
			{"dispose", demo, []string{"d"}},
			{"dispose-hostile", hostile, []string{"d"}},
			{"purge", demo, []string{"p", "'forecast-042"}},
			{"help", demo, []string{"?"}},
			{"wide", demo, []string{"w"}},
			{"empty", newHosts, nil},
		} {
			name := fmt.Sprintf("%s-%dx%d", scene.name, size[0], size[1])
			t.Run(name, func(t *testing.T) {
				d := drive(t, scene.hosts(), size[0], size[1])
				d.press(scene.keys...)
				golden(t, name, d.screen())
			})
		}
	}
}

func TestNoLineIsWiderThanTheScreen(t *testing.T) {
	for _, hosts := range []func() *fakeHosts{demo, hostile} {
		for width := minWidth; width <= 150; width += 1 + width%7 {
			d := drive(t, hosts(), width, 20)
			for _, key := range []string{"", "w", "d", "esc", "p", "esc", "?", "esc", "tab", "l"} {
				if key != "" {
					d.press(key)
				}
				lines := strings.Split(d.m.screen(), "\n")
				if len(lines) != 20 {
					t.Fatalf("width %d, key %q: %d lines", width, key, len(lines))
				}
				for i, line := range lines {
					if w := visibleWidth(line); w > width {
						t.Fatalf("width %d, key %q: line %d has %d columns: %q", width, key, i, w, line)
					}
				}
			}
		}
	}
}

func TestForeignTextReachesTheTerminalOnlyMadeVisible(t *testing.T) {
	d := drive(t, hostile(), 140, 36)
	for _, keys := range [][]string{{}, {"d"}, {"esc", "down", "p"}, {"esc", "w"}, {"down", "down"}, {"/", "'evil"}} {
		d.press(keys...)
		// What styles the screen is all that may begin with an escape.
		for _, part := range strings.Split(d.m.screen(), "\x1b")[1:] {
			if !strings.HasPrefix(part, "[") || !sgr(part[1:]) {
				t.Fatalf("after %q the screen has the sequence %q", keys, part[:min(len(part), 20)])
			}
		}
		for _, r := range d.m.screen() {
			if r < ' ' && r != '\n' && r != '\x1b' || r >= 0x7f && r < 0xa0 || r == '\u202e' {
				t.Fatalf("after %q the screen has %q", keys, r)
			}
		}
	}
}

// sgr says whether text begins with the parameters and end of a style.
func sgr(text string) bool {
	end := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != ';' && r != ':' })
	return end >= 0 && text[end] == 'm'
}
