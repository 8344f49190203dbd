package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// What docs/mst.md shows of commands is what they print.
func TestTheDocumentedCommandsPrintWhatIsShown(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs bash")
	}
	document, err := os.ReadFile("../docs/mst.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```console\n(.*?)^```$").FindAllSubmatch(document, -1)
	if len(blocks) == 0 {
		t.Fatal("the document shows no commands")
	}
	none := filepath.Join(t.TempDir(), "none")
	for _, block := range blocks {
		last := 0 // what the command before ended with
		for _, step := range strings.Split("\n"+string(block[1]), "\n$ ")[1:] {
			line, want, _ := strings.Cut(step, "\n")
			cmd := exec.Command(bash, "-c", "(exit "+strconv.Itoa(last)+"); "+line)
			cmd.Env = append(os.Environ(), "MAF_SANDBOX_TUI_RUNTIME_DIR="+none, "NO_COLOR=1")
			got, err := cmd.CombinedOutput()
			if last = cmd.ProcessState.ExitCode(); last < 0 {
				t.Fatalf("%s: %v", line, err)
			}
			if strings.TrimSuffix(string(got), "\n") != strings.TrimSuffix(want, "\n") {
				t.Errorf("$ %s\nprints\n%s\nand the document shows\n%s", line, got, want)
			}
		}
	}
}
