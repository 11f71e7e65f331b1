// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// accountPrefix is the prefix of the user names of the platform's service accounts.
const accountPrefix = "system:serviceaccount:" + systemNamespace + ":"

// apiCall is a request of a platform account in kube-apiserver's audit log.
type apiCall struct {
	account, namespace, group, resource, name, verb string

	code    int
	refused bool // by RBAC
}

// audit holds the platform's requests to kube-apiserver since the installation.
var audit struct {
	since time.Time
	calls map[apiCall]bool
}

// beginAudit excludes the requests of an earlier installation.
func beginAudit(ctx context.Context) {
	GinkgoHelper()
	namespace := &corev1.Namespace{}
	Expect(cluster.Get(ctx, types.NamespacedName{Name: systemNamespace}, namespace)).To(Succeed())
	audit.since, audit.calls = namespace.CreationTimestamp.Time, map[apiCall]bool{}
}

// auditLogs returns the files of hack/devcluster's audit log. It returns none for other clusters.
func auditLogs() []string {
	GinkgoHelper()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(os.Getenv("KUBECONFIG")), "logs", "audit*.log"))
	Expect(err).NotTo(HaveOccurred())
	return files
}

// collectAudit reads the audit log before the cluster's files are deleted and keeps the result.
func collectAudit() {
	GinkgoHelper()
	for _, path := range auditLogs() {
		file, err := os.Open(path)
		Expect(err).NotTo(HaveOccurred())
		Expect(errors.Join(readAudit(file), file.Close())).To(Succeed(), path)
	}
}

// auditEvent is a line of the log in the format of audit.k8s.io/v1.
type auditEvent struct {
	Verb string
	User struct{ Username string }

	ObjectRef *struct {
		APIGroup, Resource, Subresource, Namespace, Name string
	}
	ResponseStatus struct {
		Code    int
		Message string
	}
	RequestReceivedTimestamp time.Time
	Annotations              map[string]string
}

// readAudit adds the calls of a log.
func readAudit(log io.Reader) error {
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil // without an end of line: still being written
		}
		if err != nil {
			return fmt.Errorf("reading the audit log: %w", err)
		}
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("reading the audit log: %w: %s", err, line)
		}
		account, ours := strings.CutPrefix(e.User.Username, accountPrefix)
		if !ours || e.ObjectRef == nil || e.RequestReceivedTimestamp.Before(audit.since) {
			continue
		}
		audit.calls[e.call(account)] = true
	}
}

func (e auditEvent) call(account string) apiCall {
	resource := e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		resource += "/" + e.ObjectRef.Subresource
	}
	c := apiCall{
		account: account, namespace: e.ObjectRef.Namespace, group: e.ObjectRef.APIGroup, resource: resource,
		name: e.ObjectRef.Name, verb: e.Verb, code: e.ResponseStatus.Code,
		refused: e.Annotations["authorization.k8s.io/decision"] == "forbid",
	}
	// The API server first allows the patch of an apply, and then denies the create.
	if missing := missingVerb.FindStringSubmatch(e.ResponseStatus.Message); c.code == http.StatusForbidden && missing != nil {
		c.verb, c.refused = missing[1], true
	}
	return c
}

// missingVerb finds in a refusal by RBAC the verb that was needed.
var missingVerb = regexp.MustCompile(`^.* is forbidden: User "[^"]*" cannot ([a-z]+) resource `)
