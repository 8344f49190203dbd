//go:build linux && amd64

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestGeneratedConstantsAreThoseOfTheKernelHeaders(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("needs a C compiler: ", err)
	}
	probe := exec.Command("cc", "-E", "-x", "c", "-")
	probe.Stdin = strings.NewReader("#include <linux/kvm.h>\n#include <stdio.h>\n")
	if err := probe.Run(); err != nil {
		t.Skip("needs the kernel's and the C library's headers: ", err)
	}
	want, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../zconsts_linux_amd64.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("zconsts_linux_amd64.go is stale: run go generate ./internal/kvm")
	}
}
