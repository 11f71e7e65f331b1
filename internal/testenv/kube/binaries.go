// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// assetsVariable names the folder with etcd and kube-apiserver.
const assetsVariable = "KUBEBUILDER_ASSETS"

// remedy ends every error about missing binaries.
const remedy = "run `go run . envtest` in hack/devcluster, which downloads or builds etcd and kube-apiserver, " +
	"or set " + assetsVariable + " to a folder that holds both"

// binaries returns the folder with etcd and kube-apiserver: the one in the environment, else the
// one that hack/devcluster finds, downloads or builds.
func binaries(root string) (string, error) {
	if dir := os.Getenv(assetsVariable); dir != "" {
		for _, name := range []string{"etcd", "kube-apiserver"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				return "", fmt.Errorf("looking for %s in %s: %w; %s", name, assetsVariable, err, remedy)
			}
		}
		return filepath.Abs(dir)
	}
	unlock, err := lockBinaries()
	if err != nil {
		return "", err
	}
	defer unlock()
	cmd := exec.Command("go", "run", ".", "envtest")
	cmd.Dir = filepath.Join(root, "hack", "devcluster")
	// These are the flags of all builds, so that they share a cache.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false")
	cmd.Stderr = os.Stderr // progress for the developer
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("getting etcd and kube-apiserver: %w; %s", err, remedy)
	}
	return string(bytes.TrimSpace(out)), nil
}

// lockBinaries makes sure that one test binary at a time gets the binaries. The others then find them.
func lockBinaries() (unlock func(), err error) {
	path := fmt.Sprintf("/tmp/agentplatform-envtest-%d.lock", os.Getuid())
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		_ = file.Close() // the error of flock matters
		return nil, fmt.Errorf("waiting for the lock: %w", err)
	}
	return func() { _ = file.Close() }, nil // closing unlocks it
}
