// SPDX-License-Identifier: Apache-2.0

package dispatchapi

// ModelErrors is the prefix of the codes of runs that failed at a model service.
const ModelErrors = "model_"
