// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// debianBinaries is the folder of each version's binaries on Debian and Ubuntu.
const debianBinaries = "/usr/lib/postgresql/*/bin"

// installLock serializes the installation by several test binaries.
const installLock = "/tmp/agentplatform-install-postgresql.lock"

// errNoPostgres names the remedies.
var errNoPostgres = errors.New("there is no PostgreSQL server: neither is postgres on the PATH nor below /usr/lib/postgresql. " +
	"Install one (`sudo apt-get install postgresql`, `brew install postgresql`), put its bin folder on the PATH, " +
	"or run the tests as root where apt-get is, to have it installed")

// postgresBinaries returns the folder with postgres and initdb. It installs PostgreSQL if it is
// missing and can be installed.
func postgresBinaries() (string, error) {
	if dir := findPostgres(); dir != "" {
		return dir, nil
	}
	aptGet, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return "", errNoPostgres
	}
	if err := installPostgres(aptGet); err != nil {
		return "", fmt.Errorf("%w; installing it by apt-get: %w", errNoPostgres, err)
	}
	if dir := findPostgres(); dir != "" {
		return dir, nil
	}
	return "", errNoPostgres
}

// findPostgres searches the PATH and then Debian's folders, newest first. It returns "" if there is
// none.
func findPostgres() string {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		// initdb is next to the real binary, not next to a link to it.
		if target, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(target))
		}
	}
	found, _ := filepath.Glob(debianBinaries) // fails only for an invalid pattern
	slices.SortFunc(found, func(a, b string) int { return cmp.Compare(majorOf(b), majorOf(a)) })
	for _, dir := range append(dirs, found...) {
		if isExecutable(filepath.Join(dir, "postgres")) && isExecutable(filepath.Join(dir, "initdb")) {
			return dir
		}
	}
	return ""
}

// majorOf returns the version in Debian's path, or 0.
func majorOf(dir string) int {
	major, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	return major
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// installPostgres installs Debian's package, one test binary at a time. It prevents Debian from
// starting a cluster, unless the machine has a setting for it.
func installPostgres(aptGet string) error {
	lock, err := os.OpenFile(installLock, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("opening the lock: %w", err)
	}
	defer func() { _ = lock.Close() }() // frees the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("waiting for the lock: %w", err)
	}
	if findPostgres() != "" {
		return nil
	}
	printMessage("no PostgreSQL server found: installing Debian's package postgresql (apt-get)")
	if err := keepClusterAway("/etc/postgresql-common"); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"update", "-q"},
		{"install", "-q", "-y", "--no-install-recommends", "postgresql"},
	} {
		cmd := exec.Command(aptGet, args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("running apt-get %s: %w", args[0], err)
		}
	}
	printMessage("PostgreSQL is installed")
	return nil
}

// keepClusterAway configures postgresql-common to create no cluster during the installation.
func keepClusterAway(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", dir, err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "createcluster.conf"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("telling Debian not to start a cluster: %w", err)
	}
	_, err = file.WriteString("create_main_cluster = false\n")
	return errors.Join(err, file.Close())
}

// printMessage prints a message for the developer.
func printMessage(message string) { fmt.Fprintln(os.Stderr, "testenv:", message) }
