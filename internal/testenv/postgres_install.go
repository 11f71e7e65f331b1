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

// debianBinaries is where Debian and Ubuntu put the binaries of each version.
const debianBinaries = "/usr/lib/postgresql/*/bin"

// installLock serialises installing by several test binaries.
const installLock = "/tmp/agentplatform-install-postgresql.lock"

// errNoPostgres names the remedies.
var errNoPostgres = errors.New("there is no PostgreSQL server: neither is postgres on the PATH nor below /usr/lib/postgresql. " +
	"Install one (`sudo apt-get install postgresql`, `brew install postgresql`), put its bin folder on the PATH, " +
	"or run the tests as root where apt-get is, to have it installed")

// postgresBinaries is the folder with postgres and initdb. Where there is none
// and it can be, PostgreSQL is installed.
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

// findPostgres looks on the PATH, then in Debian's place, newest first; "" when
// there is none.
func findPostgres() string {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		// initdb lies beside the real one, not beside a link to it.
		if target, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(target))
		}
	}
	found, _ := filepath.Glob(debianBinaries) // errs on a bad pattern only
	slices.SortFunc(found, func(a, b string) int { return cmp.Compare(majorOf(b), majorOf(a)) })
	for _, dir := range append(dirs, found...) {
		if isExecutable(filepath.Join(dir, "postgres")) && isExecutable(filepath.Join(dir, "initdb")) {
			return dir
		}
	}
	return ""
}

// majorOf is the version in Debian's path, 0 when there is none.
func majorOf(dir string) int {
	major, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	return major
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// installPostgres installs Debian's package, one test binary at a time. Debian
// would start a cluster of its own; that is turned off where nobody decided
// about it before.
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
	say("no PostgreSQL server found: installing Debian's package postgresql (apt-get)")
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
	say("PostgreSQL is installed")
	return nil
}

// keepClusterAway tells postgresql-common to make no cluster at installation.
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

// say tells the person at the terminal what goes on.
func say(message string) { fmt.Fprintln(os.Stderr, "testenv:", message) }
