// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// syncs is the number of measured writes that are on the disk when they return.
const syncs = 200

// BenchmarkMachine prints the properties of the machine that the figures come from.
func BenchmarkMachine(b *testing.B) {
	pg, lite := openPostgres(b), openSQLite(b)
	var postgres, sqlite string
	require.NoError(b, pg.row(b.Context(), `SHOW server_version`, &postgres))
	require.NoError(b, lite.row(b.Context(), `SELECT sqlite_version()`, &sqlite))
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	require.NoError(b, err)
	line, err := json.Marshal(struct {
		Name       string  `json:"name"`
		Processor  string  `json:"processor"`
		Processors int     `json:"processors"`
		Memory     string  `json:"memory"`
		Kernel     string  `json:"kernel"`
		Go         string  `json:"go"`
		PostgreSQL string  `json:"postgresql"`
		SQLite     string  `json:"sqlite"`
		Sync       float64 `json:"fsync_ms"`
	}{
		"machine", fieldOf(b, "/proc/cpuinfo", "model name"), runtime.NumCPU(), fieldOf(b, "/proc/meminfo", "MemTotal"),
		strings.TrimSpace(string(kernel)), runtime.Version(), postgres, sqlite, roundMillis(syncTime(b)),
	})
	require.NoError(b, err)
	_, err = fmt.Fprintf(os.Stdout, "%s\n", line)
	require.NoError(b, err)
}

// fieldOf returns the first value of a name in a file of the kernel, or "" if the file does not contain the name.
func fieldOf(b *testing.B, file, name string) string {
	text, err := os.ReadFile(file)
	require.NoError(b, err)
	for line := range strings.Lines(string(text)) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// syncTime returns the median time of a small write to the databases' disk in milliseconds.
func syncTime(b *testing.B) float64 {
	file, err := os.Create(filepath.Join(b.TempDir(), "sync"))
	require.NoError(b, err)
	defer file.Close()
	var took []time.Duration
	for block := make([]byte, 8<<10); len(took) < syncs; {
		begun := time.Now()
		_, err := file.Write(block)
		require.NoError(b, err)
		require.NoError(b, file.Sync())
		took = append(took, time.Since(begun))
	}
	return Percentile(took, 0.5)
}
