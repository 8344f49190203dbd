package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheReadmeShowsThisProgram(t *testing.T) {
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(readme), "[examples/agent](examples/agent/main.go)")
	_, after, opened := strings.Cut(after, "\n```go\n")
	shown, _, closed := strings.Cut(after, "```\n")
	if !found || !opened || !closed {
		t.Fatal("the README does not show the program")
	}
	// The README leaves out the function round it, and so one tab.
	if outdented := strings.ReplaceAll(string(program), "\n\t", "\n"); !strings.Contains(outdented, shown) {
		t.Errorf("the README shows other lines than main.go has:\n%s", shown)
	}
}
