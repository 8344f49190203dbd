package command

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// array joins values.
func array(values [][]byte) []byte {
	return append(append([]byte{'['}, bytes.Join(values, []byte{','})...), ']')
}

// encodeRecords encodes each record as one compact value.
func encodeRecords(records []control.Record) ([][]byte, error) {
	all := make([][]byte, len(records))
	for i, r := range records {
		encoded, err := r.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("encode: %w", err)
		}
		all[i] = encoded
	}
	return all, nil
}

// format is how a value is written.
type format int

const (
	formatTable format = iota
	formatWide
	formatJSON      // indented by two
	formatJSONLines // one line for a value
)

func (f format) isJSON() bool { return f == formatJSON || f == formatJSONLines }

// writeJSON writes one compact value in the format.
func (f *Factory) writeJSON(how format, value []byte) error {
	var out bytes.Buffer
	if how == formatJSON {
		if err := json.Indent(&out, value, "", "  "); err != nil {
			return fmt.Errorf("encode: %w", err)
		}
	} else {
		out.Write(value)
	}
	out.WriteByte('\n')
	return f.Streams.WriteOut(out.Bytes())
}
