//go:build !linux || !amd64

package test

func hasKVM() bool { return false }
