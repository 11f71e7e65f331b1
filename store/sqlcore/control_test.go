// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/blob"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// methodOwner returns the store of Core that has a method.
func methodOwner(t *testing.T, method string) reflect.Type {
	t.Helper()
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Core]()) {
		if len(field.Index) > 1 || !field.Anonymous || field.Type == reflect.TypeFor[*sqldb.DB]() {
			continue
		}
		if _, has := field.Type.MethodByName(method); has {
			return field.Type.Elem()
		}
	}
	require.Fail(t, "no store has the method", method)
	return nil
}

// stateless are the methods of a Control that do not use the state of their store: each only reads the database.
var stateless = []string{"DestinationsOf", "ProjectTelemetry", "TroubledDestinations"}

// isStateless reports whether copies of a store with other values of its fields work alike: it has only its database, the store of
// blobs and functions.
func isStateless(of reflect.Type) bool {
	for i := range of.NumField() {
		field := of.Field(i).Type
		if field != reflect.TypeFor[*sqldb.DB]() && field != reflect.TypeFor[*blob.Store]() && field.Kind() != reflect.Func {
			return false
		}
	}
	return true
}

// ForCluster builds stores of its own, so the methods of a Control use no state of a store.
func TestForCluster_SharesNoState(t *testing.T) {
	t.Parallel()
	control := reflect.TypeFor[store.Control]()
	for i := range control.NumMethod() {
		name := control.Method(i).Name
		if slices.Contains(stateless, name) {
			continue
		}
		owner := methodOwner(t, name)
		t.Run(name, func(t *testing.T) { require.True(t, isStateless(owner), "%s has state", owner) })
	}
}
