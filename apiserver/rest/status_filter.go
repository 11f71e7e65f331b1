// SPDX-License-Identifier: Apache-2.0

package rest

// StatusFilter is the parameter status_filter of every list that has it, for statuses of one kind.
type StatusFilter[S ~string] struct {
	Statuses []S `query:"status_filter,explode" maxItems:"6" doc:"Only items with this status. Repeat the parameter for several statuses."`
}

// StatusesOf are the statuses of a filter, as the store knows them; none where any will do.
func StatusesOf[T, S ~string](in StatusFilter[S]) (statuses []T) {
	for _, status := range in.Statuses {
		statuses = append(statuses, T(status))
	}
	return statuses
}
