// Command maf-sandbox runs untrusted Python in a micro-VM.
package main

import (
	"os"

	"github.com/maf-sandbox/maf-sandbox-go/internal/cli/root"
)

func main() { os.Exit(root.Main()) }
