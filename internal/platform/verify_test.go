package platform

import (
	"errors"
	"strings"
	"testing"
)

func TestAStateThatDiffersIsToldByWhatDiffers(t *testing.T) {
	want := Context{Regs: Regs{RAX: 1}, FSBase: 2, GSBase: 3, XSave: []byte{4}}
	for says, change := range map[string]func(c *Context){
		"":                   func(*Context) {},
		"registers":          func(c *Context) { c.Regs.RFLAGS = 1 },
		"segment bases 0x9":  func(c *Context) { c.FSBase = 9 },
		"segment bases 0x2,": func(c *Context) { c.GSBase = 9 },
		"extended state":     func(c *Context) { c.XSave = nil },
	} {
		c := want
		change(&c)
		err := c.Verify(&want)
		if says == "" && err != nil || says != "" && (!errors.Is(err, ErrMachine) || !strings.Contains(err.Error(), says)) {
			t.Errorf("%q: %v", says, err)
		}
	}
}
