"""Plans of a training run: layouts that fit, their step time, memory and cost, from curves of collectives."""
