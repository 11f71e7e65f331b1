// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

// processes returns the process IDs, on the node, of the platform's processes in a pod.
func processes(pod corev1.Pod) []int {
	GinkgoHelper()
	var pids []int
	folders, err := filepath.Glob("/proc/[0-9]*")
	Expect(err).NotTo(HaveOccurred())
	for _, folder := range folders {
		groups, _ := os.ReadFile(filepath.Join(folder, "cgroup")) // the process may have exited
		command, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
		uid := string(pod.UID)
		if !strings.Contains(string(groups), "pod"+uid) && !strings.Contains(string(groups), "pod"+strings.ReplaceAll(uid, "-", "_")) {
			continue
		}
		if strings.HasPrefix(string(command), "/usr/local/bin/") {
			pid, err := strconv.Atoi(filepath.Base(folder))
			Expect(err).NotTo(HaveOccurred())
			pids = append(pids, pid)
		}
	}
	return pids
}

// signal sends a signal to the platform's processes of pods.
func signal(_ context.Context, sig syscall.Signal, pods ...corev1.Pod) {
	GinkgoHelper()
	for _, pod := range pods {
		found := processes(pod)
		Expect(found).NotTo(BeEmpty(), "the node of pod %s must run on this machine", pod.Name)
		for _, pid := range found {
			// A child of a process that was killed before it may have ended.
			Expect(syscall.Kill(pid, sig)).To(Or(Succeed(), MatchError(syscall.ESRCH)))
		}
	}
}
