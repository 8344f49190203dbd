package egress_test

import (
	"os"
	"testing"

	"github.com/maf-sandbox/maf-sandbox-go/internal/tools/webports"
)

func TestMain(m *testing.M) { os.Exit(webports.Run(m)) }
