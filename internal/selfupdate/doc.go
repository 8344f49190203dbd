// Package selfupdate replaces the program that runs with another release of
// itself, when its operator asks for that, through the tool that installed it.
//
// Three tools can own the program: "uv tool" and pipx own the environment into
// which the wheel that carries it was installed, and "go install" owns the
// binary it put into GOBIN. The owner alone is asked which releases there are
// and alone installs one, so that its configuration counts: indexes, proxies,
// credentials, certificates. Nothing here speaks to a server, and nothing runs
// unless Run or Detect is called.
//
// Every other installation is refused with the command that updates it: a
// project's environment, a tool of a go.mod, a distribution's package, a bare
// file. Afterwards a fresh process of the installed program must give the
// wanted version.
package selfupdate
