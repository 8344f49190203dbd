package main

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
)

func TestGeneratedCodeIsWhatTheSourceAssemblesTo(t *testing.T) {
	if _, err := exec.LookPath("as"); err != nil {
		t.Skip("needs GNU as (binutils): ", err)
	}
	want, err := generate("../vdso_amd64.S.txt")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../zcode.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("zcode.go is stale: run go generate ./internal/vdso")
	}
}
