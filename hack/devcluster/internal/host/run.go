// SPDX-License-Identifier: Apache-2.0

// Package host prepares a Linux host for a cluster and puts it back as it was:
// packages, settings of the kernel, the bridge, packet filters, mounts and
// control groups.
package host

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// systemPath lists Debian's folders of root's programs, which sudo and su do not always add to PATH.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Path returns a PATH that includes the folders of root's programs.
func Path() string {
	if path := os.Getenv("PATH"); path != "" {
		return path + ":" + systemPath
	}
	return systemPath
}

// LookPath finds a program on Path.
func LookPath(name string) (string, error) {
	for _, dir := range filepath.SplitList(Path()) {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && filepath.IsAbs(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("finding %s on the PATH: %w", name, exec.ErrNotFound)
}

// runProgram runs a program with input on its standard input. An error ends with the program's output.
func runProgram(ctx context.Context, input, name string, args ...string) (string, error) {
	path, err := LookPath(name)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "PATH="+Path(), "DEBIAN_FRONTEND=noninteractive")
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("running %s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
