// SPDX-License-Identifier: Apache-2.0

package build

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// The versions that are built. KubernetesVersion must be that of
// kube/go.mod; a test holds the two together.
const (
	KubernetesVersion = "v1.36.3"
	ContainerdVersion = "v2.4.2"
)

const (
	versionPackage = "k8s.io/component-base/version"
	kubeLDFlags    = "-s -w -X " + versionPackage + ".gitVersion=" + KubernetesVersion +
		" -X " + versionPackage + ".gitMajor=1 -X " + versionPackage + ".gitMinor=36"
	containerdTags    = "no_btrfs,no_zfs,no_devmapper"
	containerdPackage = "github.com/containerd/containerd/v2/cmd/"
)

// target is one call of the go command and its result.
type target struct {
	name    string   // folder in the cache before the key, e.g. kube-v1.36.3
	title   string   // text in the log
	dir     string   // folder to run in, relative to the source; also the folder to build
	inputs  []string // files, relative to the source, whose content is part of the cache key
	install bool     // go install of packages with a version; else go build of one folder
	args    []string // everything after the flags that all share
	outputs []string // file names that must be there afterwards
}

func kubeTarget() target {
	return target{
		name: "kube-" + KubernetesVersion, title: "Kubernetes " + KubernetesVersion + " with etcd and CoreDNS",
		dir:    "kube",
		inputs: []string{"kube/go.mod", "kube/go.sum", "kube/kube/main.go"},
		args:   []string{"-ldflags", kubeLDFlags, "./kube"}, outputs: []string{"kube"},
	}
}

func apiserverTarget() target {
	return target{
		name: "kube-apiserver-" + KubernetesVersion, title: "kube-apiserver " + KubernetesVersion + " with etcd",
		dir:    "kube",
		inputs: []string{"kube/go.mod", "kube/go.sum", "kube/kube-apiserver/main.go"},
		args:   []string{"-ldflags", kubeLDFlags, "./kube-apiserver"}, outputs: []string{"kube-apiserver"},
	}
}

func containerdTarget() target {
	names := []string{"containerd", "containerd-shim-runc-v2", "ctr"}
	args := []string{"-ldflags", "-s -w", "-tags", containerdTags}
	for _, name := range names {
		args = append(args, containerdPackage+name+"@"+ContainerdVersion)
	}
	return target{
		name: "containerd-" + ContainerdVersion, title: "containerd " + ContainerdVersion,
		install: true, args: args, outputs: names,
	}
}

func pauseTarget() target {
	return target{
		name: "pause", title: "the pause container", dir: ".",
		inputs: []string{"pause/main.go"},
		args:   []string{"-ldflags", "-s -w", "./pause"}, outputs: []string{"pause"},
	}
}

// cacheFolder is the name of the target's place in the cache. It changes with the
// inputs, the flags and the platform, not with the Go toolchain: a newer one
// builds the same thing.
func (t target) cacheFolder(source string) (string, error) {
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%s %s %q\n", runtime.GOOS, runtime.GOARCH, t.args) // a hash takes every write
	for _, name := range t.inputs {
		content, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", fmt.Errorf("reading what %s is built from: %w", t.title, err)
		}
		_, _ = fmt.Fprintf(sum, "%s %d\n", name, len(content))
		_, _ = sum.Write(content)
	}
	return t.name + "-" + hex.EncodeToString(sum.Sum(nil))[:12], nil
}

// complete reports whether dir contains every output.
func (t target) complete(dir string) bool {
	for _, name := range t.outputs {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}
