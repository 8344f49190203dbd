package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// programs are what the VM takes, and the Debian packages that have them.
var programs = []struct{ name, packages string }{
	{"qemu-system-x86_64", "qemu-system-x86 seabios"},
	{"xz", "xz-utils"},
	{"zstd", "zstd"},
}

// needs makes sure that the programs are there. Root on a Debian has them
// installed; everyone else is told what to install.
func needs(ctx context.Context) error {
	packages := missing()
	if len(packages) == 0 {
		return nil
	}
	lack := fmt.Sprintf("needs the packages %s", strings.Join(packages, " "))
	if os.Geteuid() != 0 {
		return unable("%s (and only root can install them)", lack)
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return unable("%s", lack)
	}
	fmt.Println("installing", strings.Join(packages, " "))
	install := append([]string{"install", "-y", "-qq", "--no-install-recommends"}, packages...)
	if _, err := quietly(apt(ctx, install...)); err != nil {
		// The lists of a fresh machine are missing or old.
		if _, err := quietly(apt(ctx, "update", "-qq")); err != nil {
			return unable("%s: %v", lack, err)
		}
		if _, err := quietly(apt(ctx, install...)); err != nil {
			return unable("%s: %v", lack, err)
		}
	}
	if packages := missing(); len(packages) > 0 {
		return unable("needs the packages %s; installing them did not help", strings.Join(packages, " "))
	}
	return nil
}

// missing lists the packages of programs that are not there.
func missing() []string {
	var packages []string
	for _, p := range programs {
		if _, err := exec.LookPath(p.name); err != nil {
			packages = append(packages, strings.Fields(p.packages)...)
		}
	}
	return packages
}

func apt(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8")
	return cmd
}

// quietly runs a command and gives its standard output; the error has its last
// words.
func quietly(cmd *exec.Cmd) (string, error) {
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args[:min(2, len(cmd.Args))], " "), err, lastLines(errs.String(), 3))
	}
	return out.String(), nil
}

// lastLines gives the last n lines of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
