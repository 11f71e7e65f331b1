// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ahead is how far the clocks of some processes are ahead of the others'.
const ahead = 10 * time.Minute

// commands are the gateway and the runner as they are shipped.
type commands struct{ gateway, runner string }

// goFlags make archives that both ways of building share.
var goFlags = []string{"-trimpath", "-buildvcs=false"}

// buildCommands builds them.
func buildCommands(t *testing.T) commands {
	t.Helper()
	dir := t.TempDir() + string(filepath.Separator)
	goRun(t, slices.Concat([]string{"build"}, goFlags, []string{"-ldflags", "-s -w", "-o", dir, "./cmd/webhookgw", "./cmd/runner"})...)
	return commands{dir + "webhookgw", dir + "runner"}
}

// buildAhead builds them with clocks that are ahead.
//
// A library that is loaded before others, as libfaketime is, does nothing to a static
// binary, and a namespace of the kernel's moves only the clocks that nobody reads dates
// from. So these binaries are linked with a package time of which Now adds to what the
// runtime read. Nothing else is compiled anew, for what others see of the package is the
// same; the linker would refuse it otherwise.
func buildAhead(t *testing.T) commands {
	t.Helper()
	wrong := strings.TrimSpace(goRun(t, slices.Concat([]string{"list"}, goFlags, []string{"-overlay", overlay(t), "-export", "-f", "{{.Export}}", "time"})...))
	dir := t.TempDir()
	link := func(command string) string {
		path := "github.com/agentplatform/agentplatform/cmd/" + command
		var archives strings.Builder
		main := ""
		for line := range strings.Lines(goRun(t, slices.Concat([]string{"list"}, goFlags, []string{"-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}", path})...)) {
			name, archive, _ := strings.Cut(strings.TrimSpace(line), "=")
			switch {
			case archive == "":
				continue // unsafe
			case name == "time":
				archive = wrong
			case name == path:
				main = archive
			}
			fmt.Fprintf(&archives, "packagefile %s=%s\n", name, archive)
		}
		config, binary := filepath.Join(dir, command+".importcfg"), filepath.Join(dir, command)
		require.NoError(t, os.WriteFile(config, []byte(archives.String()), 0o600))
		goRun(t, "tool", "link", "-importcfg", config, "-s", "-w", "-o", binary, main)
		return binary
	}
	return commands{link("webhookgw"), link("runner")}
}

// reading is how time.Now reads the clock.
const reading = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()"

// overlay is a file for go build -overlay with a package time that is ahead. It has as
// many lines as the original.
func overlay(t *testing.T) string {
	t.Helper()
	original := filepath.Join(strings.TrimSpace(goRun(t, "env", "GOROOT")), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(source), reading), "this release of Go reads its clock in another way: set reading right")
	dir := t.TempDir()
	changed, file := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json")
	wrong := fmt.Sprintf("%s; sec += %d", reading, int64(ahead.Seconds()))
	require.NoError(t, os.WriteFile(changed, []byte(strings.Replace(string(source), reading, wrong, 1)), 0o600))
	text, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, text, 0o600))
	return file
}

// goRun runs the go command in the repository and returns what it printed.
func goRun(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	require.NoError(t, err, "go %s: %s", strings.Join(args, " "), &said)
	return string(out)
}
