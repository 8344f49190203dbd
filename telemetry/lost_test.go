package telemetry

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What this module asks of a value whether it can do more than its type says, in
// code that is no test. A decorator that does not pass it on takes something away.
var asked = map[string]string{
	// Sandboxes: kept exactly, by decorate.
	"sandbox.Executor":    "optional",
	"sandbox.FileWriter":  "optional",
	"sandbox.FileReader":  "optional",
	"sandbox.FileLister":  "optional",
	"sandbox.FileRemover": "optional",
	"sandbox.Reclaimer":   "optional",
	// Sandboxes: kept always, since absence means what the decorator then says.
	"router.Voucher":    "box.Fresh",
	"liveness.Reporter": "box.Liveness",
	// Backends: kept always, likewise.
	"router.EgressReporter":    "Backend.ObserveEgress",
	"router.AdmissionWatcher":  "Backend.Admitted and Refused",
	"interface{ObserveEgress}": "Backend.ObserveEgress",
	"interface{Warm}":          "Backend.Warm",
	// This package's own, of what was just listed.
	"telemetry.egressReporter":   "Backend.ObserveEgress",
	"telemetry.admissionWatcher": "Backend.Admitted and Refused",
	"telemetry.warmer":           "Backend.Warm",
	"telemetry.decorated":        "box",
	"interface{Fresh}":           "box.Fresh",
	// Neither a sandbox's nor a backend's.
	"interface{Unwrap}": "errors",
}

// optional interfaces get lost when somebody asks a sandbox or a backend for
// something new and does not tell this package: this test finds the question.
func TestEveryOptionalInterfaceIsKnown(t *testing.T) {
	found := questions(t, "..")
	for name, where := range found {
		if asked[name] == "" {
			t.Errorf("%s: a value is asked whether it is a %s: if that can be a sandbox or a backend, its decorator has to pass it on; "+
				"in any case say so in the list above", where, name)
		}
	}
	for name := range asked {
		if found[name] == "" {
			t.Errorf("nobody asks for a %s any more", name)
		}
	}
}

// questions are the interfaces that type assertions and type switches below a
// folder ask for, each with one place, in packages that know package sandbox and
// in package liveness, which is asked about sandboxes without knowing it. Those of
// the standard library and of other modules are left out, but for literal ones.
func questions(t *testing.T, root string) map[string]string {
	t.Helper()
	files := token.NewFileSet()
	var parsed []*ast.File
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".") && name != root):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		parsed = append(parsed, file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	interfaces := make(map[string]bool)
	for _, file := range parsed {
		for _, declaration := range file.Decls {
			types, ok := declaration.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range types.Specs {
				if of, ok := spec.(*ast.TypeSpec); ok {
					_, is := of.Type.(*ast.InterfaceType)
					interfaces[file.Name.Name+"."+of.Name.Name] = is
				}
			}
		}
	}
	concerned := map[string]bool{"sandbox": true, "liveness": true}
	for _, file := range parsed {
		for _, imported := range file.Imports {
			if strings.HasSuffix(imported.Path.Value, `/sandbox"`) {
				concerned[file.Name.Name] = true
			}
		}
	}
	found := make(map[string]string)
	for _, file := range parsed {
		if !concerned[file.Name.Name] {
			continue
		}
		note := func(asked ast.Expr) {
			if name := interfaceName(file, asked); name != "" && (interfaces[name] || strings.HasPrefix(name, "interface")) {
				found[name] = files.Position(asked.Pos()).String()
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeAssertExpr:
				note(n.Type)
			case *ast.TypeSwitchStmt:
				for _, clause := range n.Body.List {
					for _, asked := range clause.(*ast.CaseClause).List {
						note(asked)
					}
				}
			}
			return true
		})
	}
	if len(parsed) < 100 || len(interfaces) < 100 {
		t.Fatalf("only %d files and %d types were found", len(parsed), len(interfaces))
	}
	return found
}

// interfaceName names a type as package.Name, and a literal interface by its
// methods.
func interfaceName(file *ast.File, of ast.Expr) string {
	switch of := of.(type) {
	case *ast.Ident:
		return file.Name.Name + "." + of.Name
	case *ast.SelectorExpr:
		pkg, ok := of.X.(*ast.Ident)
		if !ok {
			return ""
		}
		for _, imported := range file.Imports {
			if imported.Name != nil && imported.Name.Name == pkg.Name {
				return path.Base(strings.Trim(imported.Path.Value, `"`)) + "." + of.Sel.Name
			}
		}
		return pkg.Name + "." + of.Sel.Name
	case *ast.InterfaceType:
		methods := make(map[string]bool)
		for _, field := range of.Methods.List {
			for _, name := range field.Names {
				methods[name.Name] = true
			}
		}
		return "interface{" + strings.Join(slices.Sorted(maps.Keys(methods)), ", ") + "}"
	}
	return ""
}
