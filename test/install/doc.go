// SPDX-License-Identifier: Apache-2.0

// Package install tests what operators install: the manifests of config/, as
// kustomize makes them.
package install
