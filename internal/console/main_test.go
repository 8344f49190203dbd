package console

import (
	"os"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }
