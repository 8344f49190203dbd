package console

import (
	"fmt"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/doctest"
)

const tour = "../../docs/mst.md"

// The screens of the tour are those of the console.
func TestTheToursScreensAreReal(t *testing.T) {
	for _, scene := range []struct {
		name          string
		width, height int
		play          func(d *driver)
	}{
		{"start", 110, 20, func(d *driver) { d.press("down") }},
		{"filter", 80, 12, func(d *driver) { d.press("/", "'!kind:python host:mst") }},
		{"wide", 110, 10, func(d *driver) { d.press("w") }},
		{"dispose", 80, 18, func(d *driver) { d.press("down", "d") }},
		{"changed", 80, 18, func(d *driver) {
			d.press("down", "d")
			records := control.DemoRecords("mst-demo", noon)
			for i := range records {
				if records[i].ThreadID == "incident-184" {
					records[i].InstanceID, records[i].State, records[i].CreatedAt = "c41de93ab2ce44659a66fd28fd0a1004", control.StateReady, control.At(noon)
				}
			}
			d.hosts.add("mst-demo", records...)
			d.look()
		}},
		{"purge", 80, 18, func(d *driver) { d.press("down", "p", "'incident-184") }},
		{"after", 110, 26, func(d *driver) {
			d.hosts.add("other", sandboxes("other", 1)...)
			d.look()
			d.press("down", "d", "tab", "enter")
			d.hosts.down["other"] = errDown
			d.look()
		}},
		{"small", 40, 10, func(*driver) {}},
	} {
		t.Run(scene.name, func(t *testing.T) {
			d := drive(t, demo(), 110, 30)
			d.send(tea.WindowSizeMsg{Width: scene.width, Height: scene.height})
			scene.play(d)
			doctest.Block(t, tour, "screen "+scene.name, "```text\n"+d.screen()+"```\n", *update)
		})
	}
}

func TestTheToursKeysAreThoseOfTheKeyTable(t *testing.T) {
	var b strings.Builder
	b.WriteString("| key | what it does |\n| --- | --- |\n")
	for _, k := range bindings() {
		var keys []string
		for key := range strings.FieldsSeq(k.shown) {
			keys = append(keys, "`"+key+"`")
		}
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(keys, " "), k.help)
	}
	doctest.Block(t, tour, "keys", b.String(), *update)
}
