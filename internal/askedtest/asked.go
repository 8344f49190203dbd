// Package askedtest finds out what this module's code asks of a value whether it can
// do more than its type says. A decorator of a sandbox or a backend that does not
// pass such a question on takes something away, and nobody notices: decorators have a
// test that goes through the list.
package askedtest

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

// Compare has the test fail for what is asked below a folder, the module's, and not
// among what a decorator knows, and for what nobody asks any more.
func Compare(t testing.TB, root string, known map[string]string) {
	t.Helper()
	found := Interfaces(t, root)
	for name, where := range found {
		if known[name] == "" {
			t.Errorf("%s: a value is asked whether it is a %s: if that can be a sandbox or a backend, its decorator has to pass it on; "+
				"in any case say so in this test's list", where, name)
		}
	}
	for name := range known {
		if found[name] == "" {
			t.Errorf("nobody asks for a %s any more", name)
		}
	}
}

// Interfaces are the interfaces that type assertions and type switches below a
// folder, the module's, ask for, each with one place, in packages that know package
// sandbox and in package liveness, which is asked about sandboxes without knowing
// it. A type is package.Name, a literal interface has its methods in order. Those of
// the standard library and of other modules are left out, but for literal ones.
func Interfaces(t testing.TB, root string) map[string]string {
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
