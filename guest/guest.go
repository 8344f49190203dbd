// Package guest holds what runs inside the guest beside the user's program:
// plain Python that any CPython from 3.9 on can run.
package guest

import "embed"

// Dir is the folder in the guest in which Files appear.
const Dir = "/usr/lib/maf-sandbox"

// Driver is the name of the program that the interpreter starts.
const Driver = "driver.py"

// Files are the driver and its helper modules.
//
//go:embed *.py
var Files embed.FS
