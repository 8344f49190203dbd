package platform

import (
	"bytes"
	"fmt"
)

// Verify says how a saved state differs from the one it should be; ErrMachine is
// the class of the error.
func (c *Context) Verify(want *Context) error {
	switch {
	case c.Regs != want.Regs:
		return fmt.Errorf("%w: registers %+v differ from the template's %+v", ErrMachine, c.Regs, want.Regs)
	case c.FSBase != want.FSBase || c.GSBase != want.GSBase:
		return fmt.Errorf("%w: segment bases %#x, %#x differ from the template's %#x, %#x", ErrMachine, c.FSBase, c.GSBase, want.FSBase, want.GSBase)
	case !bytes.Equal(c.XSave, want.XSave):
		return fmt.Errorf("%w: the extended state differs from the template's", ErrMachine)
	}
	return nil
}
