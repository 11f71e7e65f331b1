// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
)

type object = map[string]any

// writeKubeconfig writes a kubeconfig with embedded certificates, so that it can be copied elsewhere. It writes JSON, which is
// valid YAML.
func writeKubeconfig(path string, dir layout.Dir, name string) error {
	var pems [3][]byte
	for i, file := range []string{dir.Cert("ca"), dir.Cert(name), dir.Key(name)} {
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading a certificate for a kubeconfig: %w", err)
		}
		pems[i] = content
	}
	content, err := json.MarshalIndent(kubeconfig(pems[0], pems[1], pems[2]), "", "  ")
	if err != nil {
		return fmt.Errorf("encoding a kubeconfig: %w", err)
	}
	return os.WriteFile(path, append(content, '\n'), 0o600)
}

// kubeconfig is the one of a user with a client certificate.
func kubeconfig(ca, cert, key []byte) object {
	const name = "devcluster"
	return object{
		"apiVersion": "v1", "kind": "Config", "current-context": name,
		"clusters": []object{{"name": name, "cluster": object{
			"server": layout.ServerURL(), "certificate-authority-data": ca, // a []byte becomes base64
		}}},
		"users":    []object{{"name": name, "user": object{"client-certificate-data": cert, "client-key-data": key}}},
		"contexts": []object{{"name": name, "context": object{"cluster": name, "user": name}}},
	}
}

// writeAdminKubeconfig writes the users' kubeconfig. The user that called sudo can read it.
func writeAdminKubeconfig(dir layout.Dir) error {
	if err := writeKubeconfig(dir.Kubeconfig(), dir, "admin"); err != nil {
		return err
	}
	uid, err := strconv.Atoi(os.Getenv("SUDO_UID"))
	if err != nil {
		return nil // not by sudo
	}
	return os.Chown(dir.Kubeconfig(), uid, -1)
}
