// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ahead is the offset of the clocks that are ahead.
const ahead = 10 * time.Minute

// commands are the gateway, the runner and all of the platform in one, as they are
// shipped.
type commands struct{ gateway, runner, whole string }

// goFlags make archives that both ways of building share.
var goFlags = []string{"-trimpath", "-buildvcs=false"}

// buildCommands builds some of them.
func buildCommands(t *testing.T, names ...string) commands {
	t.Helper()
	dir := t.TempDir() + string(filepath.Separator)
	args := slices.Concat([]string{"build"}, goFlags, []string{"-ldflags", "-s -w", "-o", dir})
	for _, name := range names {
		args = append(args, "./cmd/"+name)
	}
	goRun(t, args...)
	return commands{dir + "webhookgw", dir + "runner", dir + "agentplatform"}
}

// buildAhead builds gateway and runner with clocks that are ahead.
//
// A preloaded library such as libfaketime does not affect a static binary. A time namespace of the kernel does not move the
// clock that dates come from. The binaries are therefore linked with a package time whose Now adds an offset to the time of the
// runtime. No other package is recompiled, because the exported API of the package is unchanged. Otherwise the linker rejects
// it.
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
	return commands{gateway: link("webhookgw"), runner: link("runner")}
}

// reading is the source text of time.Now that reads the clock.
const reading = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()"

// overlay returns a file for go build -overlay that replaces package time with a copy that is ahead. The copy has as many lines
// as the original.
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

// clocksDiffer checks the clocks of gateways and runners by the dates of their HTTP responses. The clocks of the chosen
// processes are ahead, and all other clocks agree with the test's clock.
func clocksDiffer() step {
	return step{what: "clocks are " + ahead.String() + " apart", do: func(ctx context.Context, s *stage) error {
		processes := slices.Clone(s.runners)
		for _, g := range s.gateways {
			processes = append(processes, g.process)
		}
		for _, p := range processes {
			var off time.Duration
			if slices.Contains(s.scene.cast.ahead, p.name) {
				off = ahead
			}
			if err := p.dates(ctx, off); err != nil {
				return err
			}
		}
		return nil
	}}
}

// dates checks that a process dates an answer so far ahead of this one's clock; dates
// are in whole seconds.
func (p *process) dates(ctx context.Context, off time.Duration) error {
	var before time.Time
	var header http.Header
	err := p.await(ctx, func(ctx context.Context) (answered bool) { // a runner may have started just now
		before = time.Now().Truncate(time.Second)
		_, said, err := p.get(ctx, "/readyz")
		header = said
		return err == nil
	})
	if err != nil {
		return err
	}
	date, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return fmt.Errorf("reading the date of an answer of %s: %w", p.name, err)
	}
	if here := date.Add(-off); here.Before(before) || here.After(time.Now()) {
		return fmt.Errorf("%s dates an answer %s after the question, not %s", p.name, date.Sub(before), off)
	}
	return nil
}

// goRun runs the go command in the repository and returns its output.
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
