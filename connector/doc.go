// SPDX-License-Identifier: Apache-2.0

// Package connector declares the kinds of connectors, their settings and the rules of these settings.
// The files of a repository, the REST API and the store all read and write Config. Package crd converts
// it to and from the fields of Kubernetes objects.
package connector
